//! Lookup tables: their files become *table version* records of the log, and these the rows that joins look up.
//!
//! The file is looked at every two seconds, and read when it has not changed for one look. Only content that decodes is
//! logged, and only if it is new; anything else is warned of once, and the version before stays in force. Since the
//! content is in the log, a replay sees the versions where the first run saw them.

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array as _, ArrayRef};
use thiserror::Error;
use tracing::{info, warn};

use crate::config::Table;
use crate::disk::LogClock;
use crate::event::{RecordKind, Run, SourceId};
use crate::expr::DataType;
use crate::expr::row::RowKeys;
use crate::format::Messages;
use crate::source::queue::Queue;

/// How often a file is looked at. It costs one `stat`.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Why the content of a table's file is not taken.
#[derive(Debug, Error)]
pub enum TableError {
    #[error("cannot read the table {table} from {path}: {source}")]
    Io {
        table: String,
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot read the table {table} from {path}: it is a directory; set the table's `path` to the file in it")]
    Directory { table: String, path: String },
    #[error(
        "{path} is larger than {bytes_max} bytes, which is all that a record of the log can hold; set a larger log.segment"
    )]
    TooLarge { path: String, bytes_max: usize },
    #[error("{path}:{line}: {reason}")]
    Content { path: String, line: usize, reason: String },
}

impl TableError {
    /// The process's exit code when this ends it.
    pub fn exit_code(&self) -> u8 {
        match self {
            TableError::Io { .. } | TableError::Directory { .. } => 74,
            TableError::TooLarge { .. } | TableError::Content { .. } => 65,
        }
    }
}

/// The rows of a content: one a line, blank lines left out, no key twice or NULL.
///
/// # Errors
/// The first line that is no such row.
pub fn decode(table: &Table, content: &[u8]) -> Result<Vec<ArrayRef>, TableError> {
    let refuse = |line: usize, reason: String| {
        Err(TableError::Content { path: table.path.display().to_string(), line: line + 1, reason })
    };
    let lines = content.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let lines: Vec<(usize, &[u8])> =
        lines.enumerate().filter(|(_, line)| !line.iter().all(u8::is_ascii_whitespace)).collect();
    let place = |message: u32| lines.get(message as usize).map_or(0, |(line, _)| *line);
    let payload: Vec<u8> = lines.iter().flat_map(|(_, line)| line.iter().copied()).collect();
    let lengths: Vec<u32> = lines.iter().map(|(_, line)| u32::try_from(line.len()).unwrap_or(u32::MAX)).collect();
    let messages = Messages { payload: &payload, lengths: &lengths };
    let mut decoder = table.format.decoder(&table.columns, None);
    let decoded = catch_unwind(AssertUnwindSafe(|| decoder.decode(&[messages], None)));
    let Ok(decoded) = decoded else { return refuse(0, "the decoder failed on this file: please report it".into()) };
    if let Some((message, reason)) = decoded.refused.into_iter().next() {
        return refuse(place(message), reason);
    }
    let index = |name: &String| table.columns.iter().position(|field| field.name == *name);
    let keys: Vec<usize> = table.key.iter().filter_map(index).collect();
    let types: Vec<DataType> =
        keys.iter().filter_map(|key| table.columns.get(*key)).map(|field| field.data_type.clone()).collect();
    let columns: Vec<ArrayRef> = keys.iter().filter_map(|key| decoded.columns.get(*key)).cloned().collect();
    let rows = decoded.messages.len();
    let encoded = RowKeys::new(&types).and_then(|mut keys| keys.encode(&columns, rows).map(|()| keys));
    let encoded = match encoded {
        Ok(encoded) => encoded,
        Err(error) => return refuse(0, error.to_string()),
    };
    let mut seen = std::collections::BTreeMap::new();
    for (row, message) in decoded.messages.iter().enumerate() {
        if columns.iter().any(|column| column.is_null(row)) {
            return refuse(place(*message), "the key is NULL".into());
        }
        if let Some(first) = seen.insert(encoded.row(row), *message) {
            return refuse(place(*message), format!("the key is that of line {} again", place(first) + 1));
        }
    }
    Ok(decoded.columns)
}

/// The checksum by which versions are told apart.
pub fn version(content: &[u8]) -> u32 {
    crc32c::crc32c(content)
}

/// What tells that a file may have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

fn stamp(path: &Path) -> std::io::Result<Stamp> {
    let meta = std::fs::metadata(path)?;
    Ok(Stamp { inode: meta.ino(), length: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) })
}

/// The content of a table's file, which decodes.
fn read(table: &Table) -> Result<Vec<u8>, TableError> {
    let path = || table.path.display().to_string();
    let mut content = Vec::new();
    std::fs::File::open(&table.path)
        .and_then(|file| file.take(table.bytes_max as u64 + 1).read_to_end(&mut content))
        .map_err(|source| match source.kind() {
        std::io::ErrorKind::IsADirectory => TableError::Directory { table: table.name.clone(), path: path() },
        _ => TableError::Io { table: table.name.clone(), path: path(), source },
    })?;
    if content.len() > table.bytes_max {
        return Err(TableError::TooLarge { path: path(), bytes_max: table.bytes_max });
    }
    decode(table, &content).map(|_| content)
}

/// Brings a table's versions to the log.
pub struct Watcher {
    table: Table,
    id: SourceId,
    queue: Arc<Queue>,
    clock: Arc<LogClock>,
    /// Of the version that is the last in the log, where that is known.
    version: Option<u32>,
}

impl Watcher {
    /// For the table whose last version in the log is `version`, where that is known.
    pub fn new(
        table: &Table,
        id: SourceId,
        queue: &Arc<Queue>,
        clock: &Arc<LogClock>,
        version: Option<u32>,
    ) -> Watcher {
        Watcher { table: table.clone(), id, queue: Arc::clone(queue), clock: Arc::clone(clock), version }
    }

    /// Logs the file's content, if it is another than the version in the log.
    ///
    /// # Errors
    /// It cannot be read or does not decode.
    pub async fn load(&mut self) -> Result<(), TableError> {
        let table = self.table.clone();
        let content = smol::unblock(move || read(&table)).await?;
        let version = version(&content);
        if self.version != Some(version) {
            let run = Run::one(self.id, RecordKind::TableVersion, self.clock.now(), &content);
            // A closed queue means that the pipeline ends: the next start reads the file again.
            if self.queue.push(run).await.is_ok() {
                self.version = Some(version);
                info!(table = %self.table.name, bytes = content.len(), "a new version of the table is in force");
            }
        }
        Ok(())
    }

    /// Loads the file whenever it changes, for ever.
    pub async fn watch(mut self) {
        let mut loaded = stamp(&self.table.path).ok();
        let mut before = loaded;
        loop {
            smol::Timer::after(LOOK_EVERY).await;
            let now = stamp(&self.table.path).ok();
            // A file that is being written changes between two looks.
            let settled = now == before;
            before = now;
            if !settled || now == loaded {
                continue;
            }
            loaded = now;
            if let Err(error) = self.load().await {
                self.complain(&error);
            }
        }
    }

    /// Says that the file is not taken.
    pub fn complain(&self, error: &TableError) {
        warn!(table = %self.table.name, %error, "the file is not taken; the version before stays in force");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn table(format: &str) -> Table {
        let text = format!(
            "pipeline = {{ name = \"p\" }}\n[source.s]\ntype = \"stdin\"\ncolumns = {{ a = \"INT\" }}\n[sink.o]\n\
             type = \"stdout\"\nfrom = \"s\"\n[table.t]\ntype = \"file\"\npath = \"t\"\nkey = [\"id\"]\n{format}\n\
             columns = {{ id = \"INT\", name = \"STRING\" }}\n"
        );
        config::parse("f.toml", &text).expect("valid").tables.remove(0)
    }

    #[test]
    fn content_is_taken_whole_or_refused_with_its_line() {
        let csv = table("format = \"csv\"\nheader = true");
        let columns = decode(&csv, b"name,id\r\nfan,1\n\npump,2\n").expect("rows");
        assert_eq!((columns.len(), columns[0].len()), (2, 2));
        assert_eq!(decode(&csv, b"").expect("no rows")[0].len(), 0);
        let json = table("format = \"json\"");
        for (content, message) in [
            (&b"{\"id\":1}\n{\"id\":\n"[..], "t:2: "),
            (b"{\"id\":1}\n\n{\"id\":1,\"name\":\"x\"}", "t:3: the key is that of line 1 again"),
            (b"{\"id\":1}\n{\"name\":\"x\"}", "t:2: the key is NULL"),
        ] {
            let error = decode(&json, content).expect_err("refused");
            assert!(error.to_string().starts_with(message), "{error}");
            assert_eq!(error.exit_code(), 65);
        }
    }
}
