//! Sink `file`: rows appended to a file, exactly once.
//!
//! The checkpoint holds how many bytes of the file are durable. After a crash the rows behind them are regenerated from
//! the log, byte for byte the same, so:
//!
//! - A file shorter than that was cut or replaced: refused ([`SinkError::Short`]), until it is adopted.
//! - Bytes behind them are compared with what is regenerated. Equal bytes stand. From the first difference on (zeros or
//!   half pages after a power cut) they are written again, in place; the file is never cut, so that it stays visible
//!   how much was there.
//! - More bytes than are regenerated mean that the log lost what it had promised: refused ([`SinkError::Ahead`]), and
//!   refused again at the next start.
//! - Unless the output is adopted (`run --adopt`): then every byte that was found stays. Rows that replay regenerates and
//!   that stand there, from the checkpointed length on, are passed over; from the first row that differs on, or where the
//!   replay ends, rows go behind the end of the file. Its last line must be complete; while it is not, nothing is written
//!   behind it. The length that stays is in the checkpoint before the first row is written, so that a crash in between
//!   repeats nothing. A file that is shorter than it was, or gone, goes on where it ends now.
//!
//! With `roll_size` or `roll_every` rows go to `NAME-FIRST.EXT.open`, where FIRST is the number of the first row; a file
//! that is complete becomes `NAME-FIRST.EXT` once a checkpoint covers its end, and is never touched again. Where a file
//! ends depends on bytes and log time only, so a replay cuts at the same rows. A new file begins with the next row: an
//! idle stream leaves its last file open.
//!
//! The output is locked against a second writer (the file itself, or a hidden lock file beside rolled ones). What this
//! does not do: follow a file that is renamed by others while it is open (`logrotate`): roll instead. A file that is cut
//! or removed while it is open is refused ([`SinkError::Short`]) at the next row.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Array as _, ArrayRef};
use serde::{Deserialize, Serialize};

use super::{
    ADOPT, ADOPT_AGAIN, BEGIN_ANEW, BUFFER_BYTES, Flushed, GO_ON, MOVE_AWAY, Sink, SinkError, directory_of,
    write_all_waiting,
};
use crate::disk::{Access, Disk, DiskFile, Stop};
use crate::event::LogTime;
use crate::expr::Field;
use crate::format::{Encoder, FormatConfig};
use crate::settings::Section;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileConfig {
    pub path: PathBuf,
    pub format: FormatConfig,
    /// A row that would make the file larger goes to the next one.
    pub roll_size_bytes: Option<u64>,
    /// A file holds rows of one such period of log time, counted from 1970.
    pub roll_every: Option<Duration>,
    pub existing: Existing,
}

/// What a new state does with a file that holds data already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Existing {
    Refuse,
    Append,
}

impl FileConfig {
    /// Reads the sink's keys.
    pub fn read(section: &mut Section<'_>) -> Option<FileConfig> {
        let path = section.required("path", "path = \"/var/lib/forebay/out/rows.ndjson\"");
        let format = FormatConfig::read_output(section);
        let roll_size_bytes = section.size("roll_size");
        let roll_every = section.duration("roll_every");
        let existing = if section.has("existing") {
            section.choice("existing", &[("refuse", Existing::Refuse), ("append", Existing::Append)])
        } else {
            section.string("existing");
            Some(Existing::Refuse)
        };
        let (path, format, existing) = (path?, format?, existing?);
        if path.is_empty() {
            section.problem_at("path", "`path` cannot be empty", None);
            return None;
        }
        if path.ends_with('/') || Path::new(&path).file_name().is_none() {
            section.problem_at("path", "`path` must name a file, not a directory", None);
            return None;
        }
        if roll_size_bytes == Some(0) {
            section.problem_at("roll_size", "`roll_size` must be more than zero", None);
            return None;
        }
        if roll_every.is_some_and(|every| every.is_zero()) {
            section.problem_at("roll_every", "`roll_every` must be more than zero", None);
            return None;
        }
        let config = FileConfig { path: PathBuf::from(path), format, roll_size_bytes, roll_every, existing };
        if config.existing == Existing::Append && config.rolls() {
            let help = Some("remove `existing`, or `roll_size` and `roll_every`".to_owned());
            section.problem_at("existing", "rolled files are never appended to", help);
            return None;
        }
        Some(config)
    }

    fn rolls(&self) -> bool {
        self.roll_size_bytes.is_some() || self.roll_every.is_some()
    }

    /// One line for `explain`.
    pub fn describe(&self) -> String {
        let mut text = format!("file {} ({}", self.path.display(), self.format.name());
        if let Some(bytes) = self.roll_size_bytes {
            text.push_str(&format!(", rolled at {bytes} bytes"));
        }
        if let Some(every) = self.roll_every {
            text.push_str(&format!(", rolled every {}", duration_text(every)));
        }
        text.push(')');
        text
    }
}

/// A duration in the largest unit that holds it exactly.
fn duration_text(duration: Duration) -> String {
    let micros = duration.as_micros();
    let units = [(3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1000, "ms")];
    match units.iter().find(|(unit, _)| micros.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", micros / unit),
        None => format!("{micros}us"),
    }
}

/// Where the sink stands, in the checkpoint; variants are versions.
#[derive(Serialize, Deserialize)]
enum Progress {
    V1(Position),
    /// The same of an adopted output, of which so many bytes stay.
    V2(Position, u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    /// What the configuration said; another path or way of rolling starts a new output behind the last row.
    path: PathBuf,
    rolls: bool,
    /// Rows taken since the state was created.
    rows: u64,
    part: Part,
    /// Log time of the first row of the part, µs.
    part_began_us: Option<i64>,
    /// Complete files that did not have their final names yet, oldest first.
    closed: Vec<Part>,
}

/// One file of the output; without rolling there is only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    /// Number of its first row.
    first_row: u64,
    length: u64,
}

/// The names of the files of an output.
struct Names {
    path: PathBuf,
    directory: PathBuf,
    rolls: bool,
}

impl Names {
    fn new(path: &Path, rolls: bool) -> Names {
        Names { path: path.to_owned(), directory: directory_of(path), rolls }
    }

    fn stem_and_extension(&self) -> (String, String) {
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let extension = self.path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
        (stem, extension)
    }

    /// A complete file of a rolled output.
    fn complete(&self, first_row: u64) -> PathBuf {
        let (stem, extension) = self.stem_and_extension();
        self.directory.join(format!("{stem}-{first_row:020}{extension}"))
    }

    /// A file that is written.
    fn open(&self, first_row: u64) -> PathBuf {
        if !self.rolls {
            return self.path.clone();
        }
        let (stem, extension) = self.stem_and_extension();
        self.directory.join(format!("{stem}-{first_row:020}{extension}.open"))
    }

    /// The hidden lock file of a rolled output.
    fn lock(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.directory.join(format!(".{name}.lock"))
    }

    /// The first file of a rolled output, open or complete, that holds data and begins behind `row`, and its length.
    fn first_behind(&self, disk: &dyn Disk, row: u64) -> Result<Option<(PathBuf, u64)>, SinkError> {
        let (stem, extension) = self.stem_and_extension();
        let found = disk.list(&self.directory).and_then(|names| {
            let mut found: Option<(u64, PathBuf, u64)> = None;
            for name in names {
                let Some(first_row) = first_row_of(&name, &stem, &extension) else { continue };
                let path = self.directory.join(name);
                let length = disk.len(&path)?;
                if first_row > row && length > 0 && found.as_ref().is_none_or(|(first, _, _)| first_row < *first) {
                    found = Some((first_row, path, length));
                }
            }
            Ok(found)
        });
        match found {
            Ok(found) => Ok(found.map(|(_, path, length)| (path, length))),
            Err(error) => Err(SinkError::io("cannot read directory", &self.directory, error)),
        }
    }
}

fn first_row_of(name: &str, stem: &str, extension: &str) -> Option<u64> {
    let (digits, rest) = name.strip_prefix(stem)?.strip_prefix('-')?.split_at_checked(20)?;
    let rest = rest.strip_suffix(".open").unwrap_or(rest);
    if rest == extension && digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// The file that is written.
struct Output {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    /// Bytes that stand as they must: what was durable, what was found equal, what was written.
    length: u64,
    /// Bytes there were when it was opened.
    found_length: u64,
    /// A difference to what was found was met: no more comparing.
    differs: bool,
    /// The output is adopted: so many bytes stay, whatever they are. Until they are passed.
    keeps: Option<u64>,
    /// Something was found that is not regenerated, and stays.
    adopted: bool,
    /// It is the whole output, not one of several files.
    is_whole: bool,
    /// Bytes that a checkpoint has made durable, or is about to.
    synced_length: u64,
}

impl Output {
    /// Opens a file of which `durable` bytes were durable; it is created where that is none. A file that is the whole
    /// output is locked. With `adopt` it may be shorter, or gone.
    fn open(
        disk: &Arc<dyn Disk>,
        path: PathBuf,
        durable: u64,
        is_whole: bool,
        adopt: bool,
    ) -> Result<Output, SinkError> {
        let short = |path: &Path, length| SinkError::Short {
            path: path.display().to_string(),
            length,
            durable,
            remedy: if is_whole { GO_ON } else { BEGIN_ANEW },
        };
        let file = match disk.open(&path, if durable == 0 || adopt { Access::Create } else { Access::ReadWrite }) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && durable > 0 => return Err(short(&path, 0)),
            Err(error) => return Err(SinkError::io("cannot open", &path, error)),
        };
        if is_whole {
            lock(file.as_ref(), &path, &path)?;
        }
        let found_length = file.length().map_err(|error| SinkError::io("cannot look at", &path, error))?;
        let length = durable.min(found_length);
        let output = Output {
            disk: Arc::clone(disk),
            file: Arc::from(file),
            path,
            length,
            found_length,
            differs: false,
            keeps: None,
            adopted: false,
            is_whole,
            synced_length: length,
        };
        if length < durable {
            if !adopt {
                return Err(short(&output.path, length));
            }
            if !output.ends_with_line_end(length)? {
                return Err(SinkError::Unterminated { path: output.path.display().to_string(), again: ADOPT_AGAIN });
            }
            let path = output.path.display();
            tracing::warn!(%path, length, durable, "adopted: the output was cut or replaced; rows go on behind its end");
        }
        Ok(output)
    }

    /// Adopts what is there. `kept_length`: what was adopted before, and is not passed yet. Behind that, rows may have been
    /// written since, unless its last line was not complete: that one may have been completed or removed.
    fn keep_found(&mut self, kept_length: Option<u64>) -> Result<(), SinkError> {
        self.keeps = match kept_length {
            Some(kept_length) if self.ends_with_line_end(kept_length)? => Some(kept_length),
            _ => Some(self.found_length),
        };
        Ok(())
    }

    /// Whether its first `length` bytes end with a line end (or are none).
    fn ends_with_line_end(&self, length: u64) -> Result<bool, SinkError> {
        let Some(last) = length.checked_sub(1) else { return Ok(true) };
        let mut byte = [0];
        let read = self.file.read_full_at(&mut byte, last);
        read.map_err(|error| SinkError::io("cannot read", &self.path, error))?;
        Ok(byte == [b'\n'])
    }

    /// Where comparing with what was found ends.
    fn compared_length(&self) -> u64 {
        self.keeps.unwrap_or(self.found_length)
    }

    /// Whether what is put next is compared with what was found.
    fn compares(&self) -> bool {
        !self.differs && self.length < self.compared_length()
    }

    /// Goes on behind what is kept, though it is not what is regenerated.
    fn adopt(&mut self, kept_length: u64) -> Result<(), SinkError> {
        if !self.ends_with_line_end(kept_length)? {
            return Err(SinkError::Unterminated { path: self.path.display().to_string(), again: ADOPT_AGAIN });
        }
        tracing::warn!(
            path = %self.path.display(),
            held_bytes = kept_length,
            regenerated_bytes = self.length,
            "adopted: the output holds more than the log gives, or something else; it stays, and rows go on behind it"
        );
        self.length = kept_length;
        (self.keeps, self.differs, self.adopted) = (None, false, true);
        Ok(())
    }

    /// Makes `bytes` stand behind what stands already; gives how many of them were written. `rows`: where rows begin in
    /// them.
    fn put(&mut self, bytes: &[u8], rows: &[usize], stop: &Stop) -> Result<u64, SinkError> {
        let mut equal = self.compare(bytes)?;
        if let Some(kept_length) = self.keeps.filter(|_| equal < bytes.len()) {
            if self.differs {
                // The row that differs is written whole.
                equal = rows.iter().rev().find(|row| **row <= equal).copied().unwrap_or(0);
                self.adopt(kept_length)?;
            }
            self.keeps = None;
            equal += self.compare(bytes.get(equal..).unwrap_or_default())?;
        }
        let rest = bytes.get(equal..).unwrap_or_default();
        if !rest.is_empty() {
            self.check_in_place()?;
        }
        let (file, start) = (&self.file, self.length);
        let write = |part: &[u8], done: usize| file.write_at(part, start + done as u64);
        write_all_waiting(&self.path, rest, write, |pause| self.disk.wait_for_space(pause, stop))?;
        self.length += rest.len() as u64;
        Ok(rest.len() as u64)
    }

    /// How many of `bytes` are there already; advances behind them.
    fn compare(&mut self, bytes: &[u8]) -> Result<usize, SinkError> {
        const CHUNK_BYTES: usize = 64 << 10;
        let mut equal = 0;
        let mut chunk = Vec::new();
        while self.compares() && equal < bytes.len() {
            let left = usize::try_from(self.compared_length() - self.length).unwrap_or(usize::MAX);
            let wanted = bytes.get(equal..).unwrap_or_default();
            let wanted = wanted.get(..left.min(CHUNK_BYTES)).unwrap_or(wanted);
            chunk.resize(wanted.len(), 0);
            let read = self.file.read_full_at(&mut chunk, self.length);
            let read = read.map_err(|error| SinkError::io("cannot read", &self.path, error))?;
            chunk.truncate(read);
            let same = chunk.iter().zip(wanted).take_while(|(found, wanted)| found == wanted).count();
            equal += same;
            self.length += same as u64;
            if same < wanted.len() {
                self.differs = true;
                if self.keeps.is_none() {
                    tracing::warn!(
                        path = %self.path.display(),
                        offset = self.length,
                        bytes = self.found_length - self.length,
                        "output behind the last checkpoint was damaged and is written again"
                    );
                }
            }
        }
        Ok(equal)
    }

    /// What was written must still be there: behind the end of a file that was cut, a write would leave zeros, and a
    /// file that was removed takes rows that nobody will see.
    fn check_in_place(&self) -> Result<(), SinkError> {
        let failed = |error| SinkError::io("cannot look at", &self.path, error);
        let is_linked = self.file.is_linked().map_err(failed)?;
        let length = if is_linked { self.file.length().map_err(failed)? } else { 0 };
        if !is_linked || length < self.length {
            let path = self.path.display().to_string();
            let remedy = if self.is_whole { GO_ON } else { BEGIN_ANEW };
            return Err(SinkError::Short { path, length, durable: self.length, remedy });
        }
        Ok(())
    }

    /// All that was found must have been regenerated by now.
    fn check_regenerated(&self) -> Result<(), SinkError> {
        if self.length < self.found_length {
            let path = self.path.display().to_string();
            let (length, regenerated) = (self.found_length, self.length);
            let remedy = if self.is_whole { ADOPT } else { MOVE_AWAY };
            return Err(SinkError::Ahead { path, length, regenerated, remedy });
        }
        Ok(())
    }
}

fn lock(file: &dyn DiskFile, path: &Path, output: &Path) -> Result<(), SinkError> {
    match file.try_lock() {
        Ok(true) => Ok(()),
        Ok(false) => Err(SinkError::Locked { path: output.display().to_string() }),
        Err(error) => Err(SinkError::io("cannot lock", path, error)),
    }
}

/// Makes the names in a directory durable.
fn sync_directory(disk: &dyn Disk, path: &Path) -> Result<(), SinkError> {
    disk.sync_dir(path).map_err(|error| SinkError::io("cannot sync directory", path, error))
}

/// An open [`FileConfig`].
pub struct FileSink {
    disk: Arc<dyn Disk>,
    names: Names,
    roll_size_bytes: Option<u64>,
    roll_every_us: Option<i64>,
    encoder: Box<dyn Encoder>,
    /// Begins every file.
    header: Vec<u8>,
    rows: u64,
    /// First row of the file that is written.
    first_row: u64,
    part_began_us: Option<i64>,
    output: Output,
    /// Since the sink was opened.
    written_bytes: u64,
    buffer: Vec<u8>,
    /// Where rows begin in the buffer, as long as what an adopted output keeps is not passed.
    buffer_rows: Vec<usize>,
    /// The row being encoded.
    row: Vec<u8>,
    closed: Vec<Part>,
    /// How many of `closed` the last [`Sink::checkpoint`] covers.
    closed_in_checkpoint: usize,
    /// Closed files that no checkpoint has synced.
    unsynced: Vec<(Arc<dyn DiskFile>, PathBuf)>,
    /// Names were added to the directory since it was synced.
    names_changed: bool,
    stop: Stop,
    /// Keeps the lock of a rolled output.
    _lock: Option<Box<dyn DiskFile>>,
}

impl FileSink {
    /// Opens the output where `progress` says it stands, or anew.
    ///
    /// # Errors
    /// See [`SinkError`]; nothing that was there is harmed.
    pub fn open(
        config: &FileConfig,
        disk: &Arc<dyn Disk>,
        schema: &[Field],
        progress: Option<&[u8]>,
        adopt: bool,
        stop: Stop,
    ) -> Result<FileSink, SinkError> {
        let names = Names::new(&config.path, config.rolls());
        let adopt = adopt && !names.rolls;
        let directory = &names.directory;
        disk.create_dir_all(directory).map_err(|error| SinkError::io("cannot create directory", directory, error))?;
        let lock_file = if names.rolls { Some(open_lock(disk.as_ref(), &names)?) } else { None };
        let saved = match progress.map(postcard::from_bytes) {
            None => None,
            Some(Ok(Progress::V1(saved))) => Some((saved, None)),
            Some(Ok(Progress::V2(saved, kept_length))) => Some((saved, Some(kept_length))),
            Some(Err(error)) => {
                let path = config.path.display().to_string();
                return Err(SinkError::Progress { path, reason: error.to_string() });
            }
        };
        let (position, output) = match saved {
            Some((saved, keeps)) if saved.path == config.path && saved.rolls == names.rolls => {
                let mut output = resume(disk, &names, &saved, adopt)?;
                match adopt {
                    true => output.keep_found(keeps)?,
                    false => output.keeps = keeps,
                }
                (saved, output)
            }
            // The configuration changed after a checkpoint, so all rows so far are in the old output.
            Some((saved, _)) => {
                let old = Names::new(&saved.path, saved.rolls);
                let mut complete = saved.closed;
                if saved.rolls && saved.part.length > 0 {
                    complete.push(saved.part);
                }
                finish_closed(disk.as_ref(), &old, &complete)?;
                tracing::info!(old = %saved.path.display(), new = %config.path.display(), rows = saved.rows,
                    "the output was changed: later rows go to the new one");
                begin(disk, &names, config.existing, saved.rows)?
            }
            None => begin(disk, &names, config.existing, 0)?,
        };
        let encoder = config.format.encoder(schema);
        Ok(FileSink {
            disk: Arc::clone(disk),
            names,
            roll_size_bytes: config.roll_size_bytes,
            roll_every_us: config.roll_every.map(|every| i64::try_from(every.as_micros()).unwrap_or(i64::MAX)),
            header: encoder.header(),
            encoder,
            rows: position.rows,
            first_row: position.part.first_row,
            part_began_us: position.part_began_us,
            output,
            written_bytes: 0,
            buffer: Vec::new(),
            buffer_rows: Vec::new(),
            row: Vec::new(),
            closed: Vec::new(),
            closed_in_checkpoint: 0,
            unsynced: Vec::new(),
            names_changed: true,
            stop,
            _lock: lock_file,
        })
    }

    /// Hands the buffer to the operating system.
    fn drain(&mut self) -> Result<(), SinkError> {
        if !self.buffer.is_empty() {
            self.written_bytes += self.output.put(&self.buffer, &self.buffer_rows, &self.stop)?;
            self.buffer.clear();
            self.buffer_rows.clear();
        }
        Ok(())
    }

    /// Whether the encoded row belongs to the next file.
    fn rolls_before_row(&self, time: LogTime) -> bool {
        let Some(began_us) = self.part_began_us else { return false };
        let length = self.output.length + (self.buffer.len() + self.row.len()) as u64;
        self.roll_size_bytes.is_some_and(|size| length > size)
            || self.roll_every_us.is_some_and(|every| began_us.div_euclid(every) != time.0.div_euclid(every))
    }

    /// Completes the file and opens the next one, which begins with row `first_row`.
    fn roll(&mut self, first_row: u64) -> Result<(), SinkError> {
        self.drain()?;
        self.output.check_regenerated()?;
        let next = open_part(&self.disk, &self.names, first_row)?;
        let old = std::mem::replace(&mut self.output, next);
        self.closed.push(Part { first_row: self.first_row, length: old.length });
        if old.length != old.synced_length {
            self.unsynced.push((old.file, old.path));
        }
        self.first_row = first_row;
        self.part_began_us = None;
        self.names_changed = true;
        Ok(())
    }
}

/// Locks a rolled output.
fn open_lock(disk: &dyn Disk, names: &Names) -> Result<Box<dyn DiskFile>, SinkError> {
    let path = names.lock();
    let file = disk.open(&path, Access::Create).map_err(|error| SinkError::io("cannot open", &path, error))?;
    lock(file.as_ref(), &path, &names.path)?;
    Ok(file)
}

/// Length of a file; `None` where there is none.
fn length_of(disk: &dyn Disk, path: &Path) -> Result<Option<u64>, SinkError> {
    match disk.len(path) {
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(SinkError::io("cannot look at", path, error)),
    }
}

/// Opens the next file of an output; data of an earlier life that was not yet covered by a checkpoint may be there.
fn open_part(disk: &Arc<dyn Disk>, names: &Names, first_row: u64) -> Result<Output, SinkError> {
    let complete = names.complete(first_row);
    match length_of(disk.as_ref(), &complete)? {
        // It became complete under a later checkpoint than this state's.
        Some(length) => {
            Err(SinkError::Ahead { path: complete.display().to_string(), length, regenerated: 0, remedy: MOVE_AWAY })
        }
        None => Output::open(disk, names.open(first_row), 0, false, false),
    }
}

/// Opens an output that this state has not written to; `rows` were taken before.
fn begin(disk: &Arc<dyn Disk>, names: &Names, existing: Existing, rows: u64) -> Result<(Position, Output), SinkError> {
    let mut output = if names.rolls {
        if let Some((path, _)) = names.first_behind(disk.as_ref(), rows)? {
            let path = path.display().to_string();
            return Err(SinkError::Exists { path, append: "choose another path" });
        }
        open_part(disk, names, rows + 1)?
    } else {
        Output::open(disk, names.path.clone(), 0, true, false)?
    };
    if output.found_length > 0 {
        let path = output.path.display().to_string();
        match existing {
            Existing::Refuse => {
                let append = "set `existing = \"append\"` to write behind what it holds";
                return Err(SinkError::Exists { path, append });
            }
            Existing::Append if !output.ends_with_line_end(output.found_length)? => {
                return Err(SinkError::Unterminated { path, again: "start again" });
            }
            Existing::Append => output.length = output.found_length,
        }
    }
    let part = Part { first_row: rows + 1, length: output.length };
    let (path, rolls) = (names.path.clone(), names.rolls);
    Ok((Position { path, rolls, rows, part, part_began_us: None, closed: Vec::new() }, output))
}

/// Opens an output where a checkpoint left it.
fn resume(disk: &Arc<dyn Disk>, names: &Names, saved: &Position, adopt: bool) -> Result<Output, SinkError> {
    let part = saved.part;
    let complete = names.complete(part.first_row);
    if names.rolls
        && let Some(length) = length_of(disk.as_ref(), &complete)?
    {
        let path = complete.display().to_string();
        return Err(SinkError::Ahead { path, length, regenerated: part.length, remedy: MOVE_AWAY });
    }
    let output = Output::open(disk, names.open(part.first_row), part.length, !names.rolls, adopt)?;
    finish_closed(disk.as_ref(), names, &saved.closed)?;
    Ok(output)
}

/// Gives complete files, all of whose bytes a committed checkpoint covers, their final names.
fn finish_closed(disk: &dyn Disk, names: &Names, closed: &[Part]) -> Result<(), SinkError> {
    for part in closed {
        let (open, complete) = (names.open(part.first_row), names.complete(part.first_row));
        let (found, length) = match (length_of(disk, &open)?, length_of(disk, &complete)?) {
            (Some(length), _) => (&open, length),
            (None, Some(length)) => (&complete, length),
            (None, None) => (&open, 0),
        };
        let path = found.display().to_string();
        if length < part.length {
            return Err(SinkError::Short { path, length, durable: part.length, remedy: BEGIN_ANEW });
        }
        if length > part.length {
            return Err(SinkError::Ahead { path, length, regenerated: part.length, remedy: MOVE_AWAY });
        }
        if found == &open {
            disk.rename(&open, &complete).map_err(|error| SinkError::io("cannot rename", &open, error))?;
        }
    }
    if closed.is_empty() { Ok(()) } else { sync_directory(disk, &names.directory) }
}

impl Sink for FileSink {
    fn needs_time(&self) -> bool {
        self.roll_every_us.is_some()
    }

    fn write(&mut self, columns: &[ArrayRef], time: LogTime) -> Result<(), SinkError> {
        for row in 0..columns.first().map_or(0, |column| column.len()) {
            self.row.clear();
            self.encoder.encode(columns, row, &mut self.row);
            if self.rolls_before_row(time) {
                self.roll(self.rows + 1)?;
            }
            if self.output.length == 0 && self.buffer.is_empty() {
                self.buffer.extend_from_slice(&self.header);
            }
            self.part_began_us.get_or_insert(time.0);
            if self.output.keeps.is_some() {
                self.buffer_rows.push(self.buffer.len());
            }
            self.buffer.extend_from_slice(&self.row);
            self.rows += 1;
            if self.buffer.len() >= BUFFER_BYTES {
                self.drain()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.drain()
    }

    fn checkpoint(&mut self) -> Flushed {
        let drained = self.drain();
        let position = Position {
            path: self.names.path.clone(),
            rolls: self.names.rolls,
            rows: self.rows,
            part: Part { first_row: self.first_row, length: self.output.length },
            part_began_us: self.part_began_us,
            closed: self.closed.clone(),
        };
        let progress = match self.output.keeps {
            None => Progress::V1(position),
            Some(kept_length) => Progress::V2(position, kept_length),
        };
        let progress = postcard::to_allocvec(&progress).unwrap_or_default();
        let mut files = std::mem::take(&mut self.unsynced);
        if self.output.synced_length != self.output.length {
            files.push((Arc::clone(&self.output.file), self.output.path.clone()));
            self.output.synced_length = self.output.length;
        }
        let directory = std::mem::take(&mut self.names_changed).then(|| self.names.directory.clone());
        self.closed_in_checkpoint = self.closed.len();
        let disk = Arc::clone(&self.disk);
        let sync = move || {
            drained?;
            for (file, path) in files {
                file.sync().map_err(|error| SinkError::io("cannot sync", &path, error))?;
            }
            directory.map_or(Ok(()), |directory| sync_directory(disk.as_ref(), &directory))
        };
        Flushed { progress, rows: self.rows, sync: Box::new(sync) }
    }

    fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    fn committed(&mut self) -> Result<(), SinkError> {
        let covered: Vec<Part> = self.closed.drain(..std::mem::take(&mut self.closed_in_checkpoint)).collect();
        finish_closed(self.disk.as_ref(), &self.names, &covered)
    }

    fn replayed(&mut self) -> Result<bool, SinkError> {
        self.drain()?;
        if let Some(kept_length) = self.output.keeps.take().filter(|kept| self.output.length < *kept) {
            self.output.adopt(kept_length)?;
        }
        self.output.check_regenerated()?;
        if self.names.rolls
            && let Some((path, length)) = self.names.first_behind(self.disk.as_ref(), self.first_row)?
        {
            let path = path.display().to_string();
            return Err(SinkError::Ahead { path, length, regenerated: 0, remedy: MOVE_AWAY });
        }
        Ok(self.output.adopted)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::time::Instant;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;
    use crate::disk::RealDisk;
    use crate::expr::DataType;
    use crate::format::csv::CsvConfig;

    const CSV: CsvConfig = CsvConfig { header: true, separator: b',', quote: b'"', null: None };

    fn schema() -> [Field; 1] {
        [Field::new("v", DataType::String)]
    }

    fn config(directory: &Path) -> FileConfig {
        FileConfig {
            path: directory.join("o/out.ndjson"),
            format: FormatConfig::Json,
            roll_size_bytes: None,
            roll_every: None,
            existing: Existing::Refuse,
        }
    }

    fn open(config: &FileConfig, progress: Option<&[u8]>) -> Result<FileSink, SinkError> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        // A process that another test has just forked holds all locks until it has become another program.
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            match FileSink::open(config, &disk, &schema(), progress, false, Stop::default()) {
                Err(SinkError::Locked { .. }) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                opened => return opened,
            }
        }
    }

    fn column(values: &[String]) -> Vec<ArrayRef> {
        vec![Arc::new(arrow_array::StringArray::from_iter_values(values))]
    }

    /// The value of row `n` (from 1): of varying length, some with line ends.
    fn value(n: u64) -> String {
        "x\ny".repeat((n * 7 % 5) as usize) + &n.to_string()
    }

    /// Log time of row `n`, µs.
    fn time(n: u64) -> LogTime {
        LogTime((n * n / 7) as i64 * 1000)
    }

    /// Writes rows `from..=to`, one log time at a time.
    fn write(sink: &mut FileSink, from: u64, to: u64) -> Result<(), SinkError> {
        for n in from..=to {
            sink.write(&column(&[value(n)]), time(n))?;
        }
        sink.flush()
    }

    /// A whole checkpoint: synced, committed, told.
    fn commit(sink: &mut FileSink) -> Vec<u8> {
        let flushed = sink.checkpoint();
        (flushed.sync)().expect("syncs");
        sink.committed().expect("finishes");
        flushed.progress
    }

    fn position(progress: &[u8]) -> Position {
        let (Progress::V1(position) | Progress::V2(position, _)) =
            postcard::from_bytes(progress).expect("its own bytes");
        position
    }

    /// Every file of the output by name, but for lock files.
    fn files(config: &FileConfig) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(directory_of(&config.path)).expect("a directory");
        let named = entries.map(|entry| {
            let entry = entry.expect("an entry");
            (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a file"))
        });
        named.filter(|(name, _)| !name.starts_with('.')).collect()
    }

    /// The output of `rows` rows without any crash.
    fn undisturbed(config: &FileConfig, rows: u64) -> BTreeMap<String, Vec<u8>> {
        let elsewhere = TempDir::new().expect("a directory");
        let config = FileConfig { path: elsewhere.path().join("out.ndjson"), ..config.clone() };
        let mut sink = open(&config, None).expect("opens");
        write(&mut sink, 1, rows).expect("writes");
        commit(&mut sink);
        files(&config)
    }

    #[test]
    fn a_file_that_is_cut_or_removed_while_it_is_written_is_refused() {
        type Harm = fn(&Path);
        let harms: [Harm; 2] = [
            |path| fs::remove_file(path).expect("removes"),
            |path| {
                fs::File::options().write(true).open(path).and_then(|file| file.set_len(3)).expect("cuts");
            },
        ];
        for harm in harms {
            let directory = TempDir::new().expect("a directory");
            let config = config(directory.path());
            let mut sink = open(&config, None).expect("opens");
            write(&mut sink, 1, 10).expect("writes");
            harm(&config.path);
            assert!(matches!(write(&mut sink, 11, 11), Err(SinkError::Short { .. })));
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Damage {
        Cut,
        Zeros,
        Garble,
    }

    /// What a power cut can do to the bytes of a file from `at` on.
    fn damage(bytes: &[u8], at: usize, how: Damage) -> Vec<u8> {
        let (kept, lost) = bytes.split_at(at.min(bytes.len()));
        let mut bytes = kept.to_vec();
        match how {
            Damage::Cut => {}
            Damage::Zeros => bytes.extend(lost.iter().map(|_| 0)),
            Damage::Garble => {
                bytes.extend(lost.iter().enumerate().map(|(i, b)| if i % 3 == 0 { b ^ 0x15 } else { *b }))
            }
        }
        bytes
    }

    #[test]
    fn damage_at_every_byte_behind_the_durable_ones_is_repaired_and_before_them_refused() {
        let directory = TempDir::new().expect("a directory");
        let config = config(directory.path());
        let mut sink = open(&config, None).expect("opens");
        write(&mut sink, 1, 5).expect("writes");
        let progress = commit(&mut sink);
        write(&mut sink, 6, 12).expect("writes");
        drop(sink);
        let whole = fs::read(&config.path).expect("a file");
        let durable = position(&progress).part.length;
        assert_eq!(files(&config), undisturbed(&config, 12));
        for at in 0..=whole.len() {
            for how in [Damage::Cut, Damage::Zeros, Damage::Garble] {
                if (at as u64) < durable && !matches!(how, Damage::Cut) {
                    continue;
                }
                fs::write(&config.path, damage(&whole, at, how)).expect("writes");
                let opened = open(&config, Some(&progress));
                if (at as u64) < durable {
                    let error = opened.err().expect("too short");
                    assert!(matches!(&error, SinkError::Short { length, durable: d, .. }
                        if *length == at as u64 && *d == durable));
                    assert_eq!(error.exit_code(), 65);
                    continue;
                }
                let mut sink = opened.expect("opens");
                write(&mut sink, 6, 12).expect("writes");
                sink.replayed().expect("complete");
                assert_eq!(fs::read(&config.path).expect("a file"), whole, "{how:?} at {at}");
            }
        }
        fs::remove_file(&config.path).expect("removes");
        assert!(matches!(open(&config, Some(&progress)), Err(SinkError::Short { length: 0, .. })));
        assert!(!config.path.exists());
    }

    #[test]
    fn equal_bytes_are_not_written_again() {
        let directory = TempDir::new().expect("a directory");
        let config = config(directory.path());
        let mut sink = open(&config, None).expect("opens");
        let progress = commit(&mut sink);
        // More than one chunk of comparison, with the difference in the second.
        write(&mut sink, 1, 9000).expect("writes");
        drop(sink);
        let mut bytes = fs::read(&config.path).expect("a file");
        assert!(bytes.len() > 100_000);
        bytes[100_000] ^= 1;
        fs::write(&config.path, &bytes).expect("writes");
        let mut sink = open(&config, Some(&progress)).expect("opens");
        write(&mut sink, 1, 5).expect("writes");
        assert!(!sink.output.differs);
        write(&mut sink, 6, 9000).expect("writes");
        assert!(sink.output.differs);
        sink.replayed().expect("complete");
        assert_eq!(files(&config), undisturbed(&config, 9000));
    }

    #[test]
    fn rows_that_the_log_no_longer_gives_are_refused_each_time() {
        for how in [None, Some(Damage::Zeros), Some(Damage::Garble)] {
            let directory = TempDir::new().expect("a directory");
            let config = config(directory.path());
            let mut sink = open(&config, None).expect("opens");
            write(&mut sink, 1, 5).expect("writes");
            let progress = commit(&mut sink);
            write(&mut sink, 6, 12).expect("writes");
            drop(sink);
            let whole = fs::read(&config.path).expect("a file");
            let durable = position(&progress).part.length as usize;
            fs::write(&config.path, how.map_or(whole.clone(), |how| damage(&whole, durable + 2, how))).expect("writes");
            for _ in 0..2 {
                let mut sink = open(&config, Some(&progress)).expect("opens");
                write(&mut sink, 6, 11).expect("writes");
                let error = sink.replayed().expect_err("a row is missing");
                assert!(matches!(error, SinkError::Ahead { length, regenerated, .. }
                    if length == whole.len() as u64 && regenerated < length));
                assert_eq!(error.exit_code(), 65);
            }
        }
    }

    #[test]
    fn rolled_files_that_the_log_no_longer_gives_are_refused() {
        let directory = TempDir::new().expect("a directory");
        let config = FileConfig { roll_size_bytes: Some(60), ..config(directory.path()) };
        let mut sink = open(&config, None).expect("opens");
        let progress = commit(&mut sink);
        write(&mut sink, 1, 40).expect("writes");
        let second_part = sink.closed[1].first_row;
        drop(sink);
        // All of the first file comes again, but nothing of the second.
        let mut sink = open(&config, Some(&progress)).expect("opens");
        write(&mut sink, 1, second_part - 1).expect("writes");
        assert!(matches!(sink.replayed(), Err(SinkError::Ahead { .. })));
        drop(sink);
        // Files that became final under a later checkpoint: this progress is an old one.
        let mut sink = open(&config, Some(&progress)).expect("opens");
        write(&mut sink, 1, 40).expect("writes");
        let later = commit(&mut sink);
        drop(sink);
        assert!(matches!(open(&config, Some(&progress)), Err(SinkError::Ahead { .. })));
        assert!(open(&config, Some(&later)).is_ok());
    }

    #[test]
    fn files_roll_by_size_and_by_log_time() {
        let directory = TempDir::new().expect("a directory");
        let by_size = FileConfig { roll_size_bytes: Some(60), ..config(directory.path()) };
        let mut sink = open(&by_size, None).expect("opens");
        commit(&mut sink);
        write(&mut sink, 1, 30).expect("writes");
        let open_names: Vec<String> = files(&by_size).into_keys().collect();
        assert!(open_names.len() > 3);
        assert!(open_names.iter().all(|name| name.ends_with(".ndjson.open")), "{open_names:?}");
        let progress = commit(&mut sink);
        drop(sink);
        let found = files(&by_size);
        let still_open: Vec<&String> = found.keys().filter(|name| name.ends_with(".open")).collect();
        assert_eq!(still_open, [&format!("out-{:020}.ndjson.open", position(&progress).part.first_row)]);
        assert!(found.contains_key("out-00000000000000000001.ndjson"));
        assert!(found.values().all(|bytes| bytes.len() <= 60));
        let whole: Vec<u8> = found.into_values().flatten().collect();
        assert_eq!(vec![whole], undisturbed(&config(directory.path()), 30).into_values().collect::<Vec<_>>());

        let by_time = FileConfig { path: directory.path().join("o/t"), ..by_size };
        let by_time = FileConfig { roll_size_bytes: None, roll_every: Some(Duration::from_millis(10)), ..by_time };
        let mut sink = open(&by_time, None).expect("opens");
        for ms in [-1, 0, 9, 10, 39, 40] {
            sink.write(&column(&["x".to_owned()]), LogTime(ms * 1000)).expect("writes");
        }
        commit(&mut sink);
        let lengths: Vec<usize> = files(&by_time)
            .into_iter()
            .filter(|(name, _)| name.starts_with("t-"))
            .map(|(_, bytes)| bytes.len() / b"{'v':'x'}\n".len())
            .collect();
        assert_eq!(lengths, [1, 2, 1, 1, 1]);
    }

    #[test]
    fn every_csv_file_begins_with_the_header() {
        let directory = TempDir::new().expect("a directory");
        let format = FormatConfig::Csv(CSV);
        let whole = FileConfig { format: format.clone(), ..config(directory.path()) };
        let mut sink = open(&whole, None).expect("opens");
        let progress = commit(&mut sink);
        drop(sink);
        // Nothing was written before the first row: this state may begin again and again.
        assert!(open(&whole, None).is_ok());
        let mut sink = open(&whole, Some(&progress)).expect("opens");
        sink.write(&column(&["a".to_owned()]), LogTime(0)).expect("writes");
        drop(sink);
        let mut sink = open(&whole, Some(&progress)).expect("opens");
        sink.write(&column(&["a".to_owned()]), LogTime(0)).expect("writes");
        commit(&mut sink);
        sink.write(&column(&["b".to_owned()]), LogTime(0)).expect("writes");
        sink.flush().expect("flushes");
        assert_eq!(fs::read(&whole.path).expect("a file"), b"v\na\nb\n");
        drop(sink);

        let rolled = FileConfig { roll_size_bytes: Some(1), ..whole };
        let mut sink = open(&rolled, None).expect("opens");
        for value in ["a", "b"] {
            sink.write(&column(&[value.to_owned()]), LogTime(0)).expect("writes");
        }
        commit(&mut sink);
        let found = files(&rolled);
        assert_eq!(found.get("out-00000000000000000001.ndjson").map(Vec::as_slice), Some(b"v\na\n".as_slice()));
        assert_eq!(found.get("out-00000000000000000002.ndjson.open").map(Vec::as_slice), Some(b"v\nb\n".as_slice()));
    }

    #[test]
    fn a_new_state_does_not_touch_what_is_there_unless_told() {
        let directory = TempDir::new().expect("a directory");
        let refuse = config(directory.path());
        let append = FileConfig { existing: Existing::Append, ..refuse.clone() };
        fs::create_dir_all(directory_of(&refuse.path)).expect("creates");
        fs::write(&refuse.path, b"old").expect("writes");
        let error = open(&refuse, None).err().expect("not empty");
        assert_eq!(error.exit_code(), 65);
        assert!(error.to_string().contains("existing = \"append\""), "{error}");
        assert!(matches!(open(&append, None), Err(SinkError::Unterminated { .. })));
        assert_eq!(fs::read(&refuse.path).expect("a file"), b"old");

        fs::write(&refuse.path, b"old\n").expect("writes");
        let mut sink = open(&append, None).expect("opens");
        let progress = commit(&mut sink);
        write(&mut sink, 1, 3).expect("writes");
        drop(sink);
        let mut sink = open(&append, Some(&progress)).expect("opens");
        write(&mut sink, 1, 4).expect("writes");
        sink.replayed().expect("complete");
        let new = undisturbed(&refuse, 4).into_values().next().expect("a file");
        assert_eq!(fs::read(&append.path).expect("a file"), [b"old\n".as_slice(), &new].concat());
        drop(sink);

        let rolled = FileConfig { roll_size_bytes: Some(60), ..refuse };
        fs::write(rolled.path.with_file_name("out-00000000000000000077.ndjson"), b"old\n").expect("writes");
        assert!(matches!(open(&rolled, None), Err(SinkError::Exists { .. })));
    }

    #[test]
    fn an_output_has_one_writer() {
        let directory = TempDir::new().expect("a directory");
        for config in [config(directory.path()), FileConfig { roll_size_bytes: Some(9), ..config(directory.path()) }] {
            let sink = open(&config, None).expect("opens");
            let error = open(&config, None).err().expect("in use");
            assert!(matches!(error, SinkError::Locked { .. }));
            assert_eq!(error.exit_code(), 75);
            assert!(error.to_string().contains("out.ndjson"), "{error}");
            drop(sink);
            assert!(open(&config, None).is_ok());
        }
    }

    #[test]
    fn another_path_starts_a_new_output_behind_the_last_row() {
        let directory = TempDir::new().expect("a directory");
        let old = FileConfig { roll_size_bytes: Some(60), ..config(directory.path()) };
        let mut sink = open(&old, None).expect("opens");
        write(&mut sink, 1, 10).expect("writes");
        let flushed = sink.checkpoint();
        (flushed.sync)().expect("syncs");
        drop(sink);
        let new = FileConfig { path: directory.path().join("new/out.ndjson"), ..old.clone() };
        let mut sink = open(&new, Some(&flushed.progress)).expect("opens");
        assert!(files(&old).keys().all(|name| name.ends_with(".ndjson")));
        write(&mut sink, 11, 12).expect("writes");
        assert_eq!(sink.checkpoint().rows, 12);
        assert!(files(&new).contains_key("out-00000000000000000011.ndjson.open"));
    }

    #[test]
    fn places_that_cannot_be_written_are_named() {
        let directory = TempDir::new().expect("a directory");
        let blocked = directory.path().join("a_file");
        fs::write(&blocked, b"").expect("writes");
        for path in [blocked.join("out"), directory.path().to_owned(), PathBuf::from("/dev/null")] {
            let error = open(&FileConfig { path: path.clone(), ..config(directory.path()) }, None).err();
            let error = error.expect("no place for a file");
            assert_eq!(error.exit_code(), 74);
            assert!(
                error.to_string().contains(&blocked.display().to_string())
                    || error.to_string().contains(&path.display().to_string()),
                "{error}"
            );
        }
        let foreign = open(&config(directory.path()), Some(&[7, 7, 7]));
        assert!(matches!(foreign, Err(SinkError::Progress { .. })));
    }

    #[test]
    fn what_did_not_change_is_not_synced_again() {
        let directory = TempDir::new().expect("a directory");
        let mut sink = open(&config(directory.path()), None).expect("opens");
        write(&mut sink, 1, 3).expect("writes");
        commit(&mut sink);
        assert_eq!(sink.output.synced_length, sink.output.length);
        assert!(!sink.names_changed);
        write(&mut sink, 4, 4).expect("writes");
        assert_ne!(sink.output.synced_length, sink.output.length);
    }

    /// How far a checkpoint gets before the crash or the next step.
    #[derive(Clone, Copy, Debug)]
    enum Reached {
        Synced,
        Committed,
        Finished,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write { rows: u64, flush: bool },
        Checkpoint(Reached),
        Crash { how: Damage, at: prop::sample::Index, names_lost: bool },
    }

    fn step() -> impl Strategy<Value = Step> {
        let reached = prop::sample::select(vec![Reached::Synced, Reached::Committed, Reached::Finished]);
        let how = prop::sample::select(vec![Damage::Cut, Damage::Zeros, Damage::Garble]);
        prop_oneof![
            3 => (1u64..20, any::<bool>()).prop_map(|(rows, flush)| Step::Write { rows, flush }),
            2 => reached.prop_map(Step::Checkpoint),
            2 => (how, any::<prop::sample::Index>(), any::<bool>())
                .prop_map(|(how, at, names_lost)| Step::Crash { how, at, names_lost }),
        ]
    }

    /// Damages what no checkpoint covers, in every file of the output.
    fn power_cut(config: &FileConfig, committed: &Position, how: Damage, at: prop::sample::Index, names_lost: bool) {
        let names = Names::new(&config.path, config.rolls());
        for (name, bytes) in files(config) {
            let path = names.directory.join(&name);
            let covered = committed
                .closed
                .iter()
                .chain([&committed.part])
                .find(|part| path == names.open(part.first_row) || path == names.complete(part.first_row));
            let durable = match covered {
                Some(part) => part.length as usize,
                None if name.ends_with(".open") && names_lost => {
                    fs::remove_file(path).expect("removes");
                    continue;
                }
                None if name.ends_with(".open") => 0,
                None => bytes.len(),
            };
            let at = durable + at.index(bytes.len() - durable + 1);
            fs::write(path, damage(&bytes, at, how)).expect("writes");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn crashes_leave_no_trace(
            steps in proptest::collection::vec(step(), 1..25),
            roll_size_bytes in prop_oneof![Just(None), (1u64..200).prop_map(Some)],
            roll_every in prop_oneof![Just(None), (1u64..50).prop_map(|ms| Some(Duration::from_millis(ms)))],
            csv in any::<bool>(),
        ) {
            let directory = TempDir::new().expect("a directory");
            let format = if csv { FormatConfig::Csv(CSV) } else { FormatConfig::Json };
            let config = FileConfig { roll_size_bytes, roll_every, format, ..config(directory.path()) };
            let mut sink = open(&config, None).expect("opens");
            let mut committed = commit(&mut sink);
            let mut rows = 0;
            for step in &steps {
                match step {
                    Step::Write { rows: more, flush } => {
                        for n in rows + 1..=rows + more {
                            sink.write(&column(&[value(n)]), time(n)).expect("writes");
                        }
                        rows += more;
                        if *flush {
                            sink.flush().expect("flushes");
                        }
                    }
                    Step::Checkpoint(reached) => {
                        let flushed = sink.checkpoint();
                        prop_assert_eq!(flushed.rows, rows);
                        (flushed.sync)().expect("syncs");
                        if !matches!(reached, Reached::Synced) {
                            committed = flushed.progress;
                        }
                        if matches!(reached, Reached::Finished) {
                            sink.committed().expect("finishes");
                        }
                    }
                    Step::Crash { how, at, names_lost } => {
                        drop(sink);
                        let position = position(&committed);
                        power_cut(&config, &position, *how, *at, *names_lost);
                        sink = open(&config, Some(&committed)).expect("opens");
                        write(&mut sink, position.rows + 1, rows).expect("writes");
                        sink.replayed().expect("complete");
                    }
                }
            }
            commit(&mut sink);
            prop_assert_eq!(files(&config), undisturbed(&config, rows));
        }
    }
}
