//! A log as both sides read it: records with their arrival, LSNs from 1.

/// What a record says.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    Data {
        source: String,
        line: String,
    },
    /// Time has passed.
    Tick,
    /// The engine started: idleness counts anew.
    Start,
    End {
        source: String,
    },
}

/// Records with their log time in µs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log(pub Vec<(i64, Record)>);
