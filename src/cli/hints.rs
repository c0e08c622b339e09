//! What to try next while a pipeline runs, as commands that can be copied to another terminal. For people only: a
//! service's log does not get them.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::config::{Config, Source};
use crate::expr::DataType;
use crate::format::FormatConfig;

/// The hints for a pipeline. `program` and `file` are what the user has typed.
pub fn hints(config: &Config, program: &str, file: &str) -> String {
    let mut commands: Vec<(String, String)> = Vec::new();
    if let Some((command, source)) = config.sources.iter().find_map(|s| Some((send(s)?, &s.name))) {
        commands.push((command, format!("a message for source {source}, from bash")));
    }
    commands.push((format!("{program} log cat {file} --from 10s"), "the raw input, as it was logged".to_owned()));
    commands.push((format!("{program} checkpoint list {file}"), "what has been made durable".to_owned()));
    commands.push((format!("{program} explain {file}"), "the plan and the guarantees".to_owned()));
    let width = commands.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    let mut text = String::from("To try while it runs, from another terminal:\n");
    for (command, comment) in commands {
        let _ = writeln!(text, "  {command:width$}   # {comment}");
    }
    text
}

/// A command that sends one JSON message to a source that takes lines over TCP.
fn send(source: &Source) -> Option<String> {
    let (host, port) = source.connector.line_address()?.rsplit_once(':')?;
    let host = if matches!(host, "0.0.0.0" | "[::]") { "127.0.0.1" } else { host.trim_matches(['[', ']']) };
    if source.format != FormatConfig::Json {
        return None;
    }
    let fields = source.columns.iter().filter_map(|field| Some((field.name.clone(), example(&field.data_type)?)));
    let message = Value::Object(fields.collect::<Map<_, _>>()).to_string().replace('\'', "'\\''");
    Some(format!("echo '{message}' > /dev/tcp/{host}/{port}"))
}

fn example(of: &DataType) -> Option<Value> {
    let now = jiff::Timestamp::now();
    match of {
        DataType::String => Some(json!("pump-1")),
        DataType::Boolean => Some(json!(true)),
        DataType::TimestampLtz(_) => Some(json!(format!("{now:.3}"))),
        DataType::Timestamp(_) => Some(json!(format!("{now:.3}").trim_end_matches('Z'))),
        integer if integer.is_integer() => Some(json!(21)),
        number if number.is_numeric() => Some(json!(21.5)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn a_message_that_the_source_takes() {
        let text = r#"
            pipeline = { name = "p" }
            [source.s]
            type = "tcp"
            listen = "0.0.0.0:9000"
            columns = { device = "STRING", "it's" = "DOUBLE", n = "INT", b = "BYTES" }
            [sink.out]
            type = "stdout"
            from = "s"
        "#;
        let config = config::parse("f.toml", text).expect("valid");
        let shown = hints(&config, "target/release/forebay", "f.toml");
        let message = r#"{"device":"pump-1","it'\''s":21.5,"n":21}"#;
        assert!(shown.contains(&format!("echo '{message}' > /dev/tcp/127.0.0.1/9000 ")), "{shown}");
        assert!(shown.contains("  target/release/forebay log cat f.toml --from 10s "), "{shown}");
        let lengths = config::parse("f.toml", &text.replace("columns", "framing = \"fixed\"\nsize = 3\ncolumns"));
        assert!(!hints(&lengths.expect("valid"), "forebay", "f.toml").contains("/dev/tcp"));
    }
}
