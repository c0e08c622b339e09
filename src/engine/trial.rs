//! Runs a `[[test]]` of the configuration through the real engine: its inputs become records of a log that is only in
//! memory, and what comes out of the expected streams is kept as the JSON sink prints it.
//!
//! Time stands still but where an input says when it arrives; on the way there a tick comes whenever one is due, as in
//! a running pipeline. Arrivals before the first such time are those of a clock that is not set: `max_future` does not
//! hold for them. No disk, no sinks of the configuration, no clock.

use std::sync::{Arc, Mutex};

use arrow_array::ArrayRef;

use super::EngineError;
use super::graph::Stored;
use super::step::{BATCH_ROWS, Engine, OpenSink};
use super::table;
use crate::config::{Config, InputOf, Sink as SinkPlan, Test};
use crate::event::{Frame, LogTime, RecordKind, Run, SourceId};
use crate::format::{Encoder, FormatConfig};
use crate::sink::stdout::StdoutConfig;
use crate::sink::{Flushed, Sink, SinkConfig, SinkError};
use crate::state::{NoStored, StateReader};

/// The rows of each expected stream of the test, in the test's order, as JSON.
///
/// # Errors
/// A source with `on_error = "stop"` refused a message.
pub fn run(config: &Config, test: &Test) -> Result<Vec<Vec<String>>, EngineError> {
    let mut config = config.clone();
    let mut open = Vec::new();
    let mut kept = Vec::new();
    config.sinks.clear();
    for expected in &test.expected {
        let name = expected.stream.to_string();
        let rows = Arc::new(Mutex::new(Vec::new()));
        let encoder = FormatConfig::Json.encoder(&expected.fields);
        open.push(OpenSink { name: name.clone(), sink: Box::new(Keep { encoder, rows: Arc::clone(&rows) }) });
        kept.push(rows);
        config.sinks.push(SinkPlan {
            name,
            connector: SinkConfig::Stdout(StdoutConfig { format: FormatConfig::Json }),
            from: expected.stream.clone(),
            fields: expected.fields.clone(),
            columns: expected.columns.clone(),
        });
    }
    let ids: Vec<(SourceId, String)> = (0u16..).map(SourceId).zip(config.logged_names()).collect();
    let reader: Arc<dyn StateReader> = Arc::new(NoStored);
    let engine = Engine::new(&config, &ids, &NothingStored, &reader, open, BATCH_ROWS)?;
    let start = test.inputs.iter().find_map(|input| input.at).unwrap_or_default();
    let mut trial = Trial { engine, now: start, clock_is_set: false };
    trial.log(SourceId::PIPELINE, RecordKind::Start, &[])?;
    for input in &test.inputs {
        if let Some(at) = input.at {
            trial.pass_time(at)?;
        }
        let Some((of, messages)) = &input.messages else { continue };
        match of {
            InputOf::Source(source) => {
                if let Some((id, _)) = ids.get(*source) {
                    trial.log(*id, RecordKind::Data, messages)?;
                }
            }
            InputOf::Table(table) => {
                let content = messages.join("\n");
                if let Some(table) = config.tables.get(*table) {
                    table::decode(table, content.as_bytes())?;
                }
                if let Some((id, _)) = ids.get(config.sources.len() + table) {
                    trial.log(*id, RecordKind::TableVersion, &[content])?;
                }
            }
        }
    }
    if test.end {
        for (id, _) in ids.iter().take(config.sources.len()) {
            trial.log(*id, RecordKind::EndOfInput, &[])?;
        }
    }
    drop(trial);
    Ok(kept.iter().map(|rows| rows.lock().map(|mut rows| std::mem::take(&mut *rows)).unwrap_or_default()).collect())
}

struct Trial {
    engine: Engine,
    now: LogTime,
    clock_is_set: bool,
}

impl Trial {
    /// Logs a record with each of the messages (one empty record where there are none), all arriving now.
    fn log(&mut self, source: SourceId, kind: RecordKind, messages: &[String]) -> Result<(), EngineError> {
        let mut run = Run::new(source, kind, self.now);
        run.unsynchronised = !self.clock_is_set;
        messages.iter().for_each(|message| run.push(message.as_bytes()));
        if !matches!(kind, RecordKind::Data | RecordKind::TableVersion) {
            run.push(&[]);
        }
        if run.is_empty() {
            return Ok(());
        }
        self.engine.step(&Frame { first_lsn: self.engine.last_lsn().plus(1), runs: vec![run] })
    }

    /// Lets time pass until `at`, with a tick whenever one is due. Like log time it never runs backwards.
    fn pass_time(&mut self, at: LogTime) -> Result<(), EngineError> {
        self.clock_is_set = true;
        let mut before = None;
        while let Some(due) = self.engine.next_deadline().filter(|due| *due <= at && Some(*due) != before) {
            before = Some(due);
            self.now = self.now.max(due);
            self.log(SourceId::PIPELINE, RecordKind::Tick, &[])?;
        }
        self.now = self.now.max(at);
        Ok(())
    }
}

struct NothingStored;

impl Stored for NothingStored {
    fn operator(&self, _: &str) -> (u32, Vec<i64>) {
        (0, Vec::new())
    }
}

/// A sink that keeps rows as text.
struct Keep {
    encoder: Box<dyn Encoder>,
    rows: Arc<Mutex<Vec<String>>>,
}

impl Sink for Keep {
    fn write(&mut self, columns: &[ArrayRef], _: LogTime) -> Result<(), SinkError> {
        let Ok(mut rows) = self.rows.lock() else { return Ok(()) };
        for row in 0..columns.first().map_or(0, |column| column.len()) {
            let mut text = Vec::new();
            self.encoder.encode(columns, row, &mut text);
            rows.push(String::from_utf8_lossy(&text).trim_end().to_owned());
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn checkpoint(&mut self) -> Flushed {
        Flushed { progress: Vec::new(), rows: 0, sync: Box::new(|| Ok(())) }
    }

    fn committed(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn replayed(&mut self) -> Result<bool, SinkError> {
        Ok(false)
    }
}
