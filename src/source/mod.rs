//! Sources: bytes from outside, cut into messages and stamped with their arrival, on their way to the replay log.
//! Sources know nothing of SQL.
//!
//! To add one: a file here with its config struct, its code and its unit tests; a variant in [`SourceConfig`]; a line
//! in the registry below. A forgotten step does not compile.
