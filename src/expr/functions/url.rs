//! `PARSE_URL`: the parts of a URL as `java.net.URL` finds them.
//!
//! The protocols are http, https, ftp and file; of another one every part is NULL. (Java also knows jar and mailto,
//! whose parts Flink gives.) A URL that Java refuses, for example one with letters for a port, gives NULL, too.

use std::net::Ipv6Addr;

use super::{Function, Refusal, Resolved, fallible_call, string};
use crate::expr::build::Expr;
use crate::expr::types::DataType;
use crate::expr::vector::{Operand, make_strings};

pub const FUNCTIONS: &[Function] =
    &[Function { name: "PARSE_URL", parameters: "STRING, STRING [, STRING]", resolve: parse_url }];

const PROTOCOLS: [&str; 4] = ["http", "https", "ftp", "file"];

#[derive(Debug, Default, PartialEq)]
struct Url<'t> {
    protocol: String,
    authority: Option<&'t str>,
    user: Option<&'t str>,
    host: &'t str,
    path: String,
    query: Option<&'t str>,
    reference: Option<&'t str>,
}

impl<'t> Url<'t> {
    fn parse(text: &'t str) -> Option<Url<'t>> {
        let text = text.trim_matches(|c: char| c <= ' ');
        let text = match text.get(..4) {
            Some(start) if start.eq_ignore_ascii_case("url:") => text.get(4..)?,
            _ => text,
        };
        let (protocol, rest) = text.split_at_checked(text.find([':', '/'])?)?;
        let protocol = protocol.to_lowercase();
        let rest = rest.strip_prefix(':').filter(|_| PROTOCOLS.contains(&protocol.as_str()))?;
        let (rest, reference) = split_off(rest, '#');
        let (rest, query) = split_off(rest, '?');
        let mut url = Url { protocol, query, reference, ..Url::default() };
        let path = match rest.strip_prefix("//").filter(|_| !rest.starts_with("////")) {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                url.set_authority(authority)?;
                path
            }
            None => rest,
        };
        url.path = match (path.starts_with('/') || path.is_empty(), url.authority) {
            (false, Some(_)) => plain(format!("/{path}")),
            _ => plain(path.to_owned()),
        };
        Some(url)
    }

    fn set_authority(&mut self, authority: &'t str) -> Option<()> {
        self.authority = Some(authority);
        let host = match authority.split_once('@') {
            Some((_, host)) if host.contains('@') => return Some(()),
            Some((user, host)) => {
                self.user = Some(user);
                host
            }
            None => authority,
        };
        let (host, port) = match host.starts_with('[') {
            true => {
                let end = host.find(']').filter(|end| *end > 2)?;
                let (host, port) = host.split_at(end + 1);
                let address = host.get(1..end)?;
                address.split('%').next()?.parse::<Ipv6Addr>().ok()?;
                (host, if port.is_empty() { port } else { port.strip_prefix(':')? })
            }
            false => host.split_once(':').unwrap_or((host, "")),
        };
        if !port.is_empty() && port.parse::<i32>().ok()? < -1 {
            return None;
        }
        self.host = host;
        Some(())
    }

    fn part(&self, name: &str) -> Option<String> {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        match name {
            "HOST" => Some(self.host.to_owned()),
            "PATH" => Some(self.path.clone()),
            "QUERY" => owned(self.query),
            "REF" => owned(self.reference),
            "PROTOCOL" => Some(self.protocol.clone()),
            "FILE" => Some(self.query.map_or(self.path.clone(), |query| format!("{}?{query}", self.path))),
            "AUTHORITY" => owned(self.authority),
            "USERINFO" => owned(self.user),
            _ => None,
        }
    }
}

/// A text in front of a character and behind it.
fn split_off(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// A path without `/./` and `/../`, as far as Java resolves them.
fn plain(mut path: String) -> String {
    while let Some(at) = path.find("/./") {
        path.replace_range(at..at + 2, "");
    }
    let mut from = 0;
    while let Some(at) = path.get(from..).and_then(|rest| rest.find("/../")).map(|at| at + from) {
        let above = path.get(..at).and_then(|before| before.rfind('/'));
        match above.filter(|above| at > 0 && path.get(*above..).is_some_and(|rest| !rest.starts_with("/../"))) {
            Some(above) => {
                path.replace_range(above..at + 3, "");
                from = 0;
            }
            None => from = at + 3,
        }
    }
    while path.ends_with("/..") {
        let above = path.find("/..").and_then(|at| path.get(..at)?.rfind('/'));
        let Some(above) = above else { break };
        path.truncate(above + 1);
    }
    if path.starts_with("./") && path.len() > 2 {
        path.replace_range(..2, "");
    }
    if path.ends_with("/.") {
        path.pop();
    }
    path
}

/// The value of a query's parameter; the first of two counts.
fn parameter(query: &str, key: &str) -> Option<String> {
    let values = query.split('&').filter_map(|part| part.strip_prefix(key)?.strip_prefix('='));
    values.map(str::to_owned).next()
}

fn parse_url(args: Vec<Expr>) -> Resolved {
    if !(2..=3).contains(&args.len()) {
        return Err(Refusal::Arguments);
    }
    let args = args.into_iter().map(string).collect::<Result<Vec<Expr>, Refusal>>()?;
    Ok(fallible_call("PARSE_URL", args, DataType::String, |args, scope| {
        let text = |index: usize, row: usize| args.get(index).map(Operand::strings).and_then(|texts| texts.get(row));
        make_strings(scope, |row, out| {
            let (Some(url), Some(name)) = (text(0, row), text(1, row)) else { return Ok(false) };
            let found = match args.len() {
                2 => Url::parse(url).and_then(|url| url.part(name)),
                _ => text(2, row).filter(|_| name == "QUERY").and_then(|key| parameter(Url::parse(url)?.query?, key)),
            };
            out.push_str(found.as_deref().unwrap_or_default());
            Ok(found.is_some())
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(url: &str, name: &str) -> Option<String> {
        Url::parse(url).and_then(|url| url.part(name))
    }

    #[test]
    fn urls_come_apart_as_in_java() {
        let is = |url: &str, name: &str, value: &str| assert_eq!(part(url, name).as_deref(), Some(value), "{url}");
        is("http://a:80/b", "HOST", "a");
        is("HTTP://[::1]:80/b", "HOST", "[::1]");
        is("HTTP://a/b", "PROTOCOL", "http");
        is(" url:http://a/b ", "PATH", "/b");
        is("http://a/b/../c/./d/..", "PATH", "/c/");
        is("http://a/../b", "PATH", "/../b");
        is("file:/etc/x", "PATH", "/etc/x");
        is("file:///etc/x", "AUTHORITY", "");
        is("http://a?x=1/2", "QUERY", "x=1/2");
        is("http://a#b?c", "REF", "b?c");
        is("http://u@v@w/", "HOST", "");
        assert_eq!(part("http://u@v@w/", "USERINFO"), None);
        assert_eq!(part("file:/etc/x", "AUTHORITY"), None);
        for none in ["", "a", "//a/b", "http//a", "http://a:b/", "http://[1/", "gopher://a/b"] {
            assert_eq!(part(none, "HOST"), None, "{none}");
        }
        assert_eq!(parameter("a=1&b=2&b=3", "b").as_deref(), Some("2"));
        assert_eq!(parameter("ab=1", "b"), None);
    }
}
