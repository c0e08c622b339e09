//! `[table.NAME]`: a lookup table that is a file, for `JOIN … FOR SYSTEM_TIME AS OF a._arrival`.

use std::path::PathBuf;

use super::{LogPolicy, plan};
use crate::expr::{Field, Schema};
use crate::format::FormatConfig;
use crate::replay_log::LogOptions;
use crate::settings::{Section, suggestion};

/// See the module.
#[derive(Clone, Debug)]
pub struct Table {
    pub name: String,
    pub path: PathBuf,
    /// One row a line.
    pub format: FormatConfig,
    pub columns: Vec<Field>,
    /// Primary key: names of columns.
    pub key: Vec<String>,
    /// A larger file does not fit a record of the log.
    pub bytes_max: usize,
}

impl Table {
    /// The columns; there is no time attribute.
    pub fn schema(&self) -> Schema {
        Schema::new(self.columns.clone())
    }
}

/// A table with a problem is none, so that queries over it do not report its consequences.
pub(super) fn read_table(name: &str, mut section: Section<'_>, limits: &LogPolicy) -> Option<Table> {
    let before = section.problems();
    let kind = section.required("type", "type = \"file\"")?;
    if kind != "file" {
        let help = suggestion(&kind, &["file"]);
        section.problem_at("type", format!("there is no table type \"{kind}\""), Some(help));
    }
    let path = section.required("path", "path = \"devices.csv\"");
    let format = FormatConfig::read_input(&mut section);
    let columns = plan::read_columns(&mut section);
    if !section.has("key") {
        section.missing("key", "key = [\"id\"]");
    }
    let key = plan::read_key(&mut section, columns.as_deref().unwrap_or_default());
    if let (Some(format), Some(columns)) = (&format, &columns)
        && let Err(why) = format.check(columns)
    {
        section.problem_at("columns", why, None);
    }
    let whole = section.problems() == before;
    section.finish();
    let bytes_max = LogOptions { segment_bytes: limits.segment_bytes, ..LogOptions::default() }.max_record_bytes();
    let table = Table { name: name.to_owned(), path: path?.into(), format: format?, columns: columns?, key, bytes_max };
    whole.then_some(table)
}
