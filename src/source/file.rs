//! A file, to its end, or followed through rotation (`follow = true`).
//!
//! Every data and bad run carries the position behind its last message, so that reading goes on exactly there after a
//! crash: bytes of a message that was not complete are read again. A file is known by its inode and the checksum of its
//! first bytes. The start of each file is a connect record, its end a disconnect record; reading on in the middle of a
//! file makes none.
//!
//! Following looks every 200 ms. Renamed and made anew: the old file is read to its end, until the new one has content
//! and the old one stood still for two looks. Cut or rewritten in place (copytruncate): a gap record, since what was
//! written just before is lost, then from the start. A file that only became shorter (a power cut took what its writer
//! had not synced) goes on at its end. What was renamed while Forebay was stopped or held up is found by its inode under
//! another name in the same directory. If it is called `NAME.3` there, `NAME.2` and `NAME.1` come next; files between
//! two readings that are named otherwise or are compressed by then are not read.
//!
//! With `log = "position"` the log holds references to the messages instead of the messages, and a replay reads the file
//! again. So what is referred to must be as durable as the log: the file (and its name) is synced before its bytes are
//! read, once, or again where it has grown meanwhile; and the file must stay as it is until a checkpoint covers it.
//! A followed file does not: its writer renames, compresses and cuts it when it likes. There it is refused.

use std::fmt;
use std::fs::{self, Metadata};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirEntryExt, FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_lite::future::block_on;

use super::framing::{Framed, Framer, FramingConfig, Medium};
use super::queue::Closed;
use super::{End, Output, Resume, Running, Source, SourceError, Warnings, encode};
use crate::event::{Gap, Position, RecordKind};
use crate::settings::Section;

const READ_BYTES: usize = 128 * 1024;
/// Bytes at a file's start that tell it from another.
const HEAD_BYTES_MAX: usize = 1024;
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Looks that find a renamed file unchanged before it is left.
const LOOKS_BEFORE_LEAVING: u32 = 2;

/// Settings of a `file` source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileConfig {
    pub path: String,
    /// Wait for more at the end, and go on with a new file of the name.
    pub follow: bool,
    /// The log is to refer to the file instead of holding its bytes.
    pub log_position: bool,
    pub framing: FramingConfig,
}

impl FileConfig {
    /// Reads `path`, `follow`, `log` and the framing.
    pub fn read(section: &mut Section<'_>) -> Option<FileConfig> {
        let path = section.required("path", "path = \"/var/log/plant.ndjson\"");
        if path.as_ref().is_some_and(String::is_empty) {
            section.problem_at("path", "`path` is empty", None);
        }
        let follow = section.boolean("follow").unwrap_or(false);
        let framing = FramingConfig::read(section, Medium::Stream);
        let log_position = section.choice("log", &super::LOG_CHOICES).unwrap_or(false);
        if log_position && follow {
            let message = "`log = \"position\"` needs a file that stays as it is; one that is followed is renamed, \
                           compressed or cut by its writer, and then a replay would find nothing";
            section.problem_at("log", message, Some("remove `log`, so that the log holds the payload".to_owned()));
        }
        if log_position && !framing.is_verbatim() {
            let message = "`log = \"position\"` needs messages that stand in the file as they are, which this framing \
                           does not give";
            section.problem_at("log", message, Some("remove `log`, so that the log holds the payload".to_owned()));
        }
        Some(FileConfig { path: path?, follow, log_position, framing })
    }

    /// Whether the file holds something that is not behind `position`: more bytes, or another content.
    pub fn has_more(&self, position: Option<Position>) -> bool {
        let path = Path::new(&self.path);
        let length = || fs::metadata(path).map_or(0, |metadata| metadata.len());
        match position {
            None => length() > 0,
            Some(position) => {
                let Position::File { offset, .. } = position;
                open_same_or_copy(path, position).is_ok_and(|found| found.is_none() || length() > offset)
            }
        }
    }
}

impl FileConfig {
    /// `position` in the file that stands at the path now, where that is a copy of the one it is of: the same beginning, at
    /// least as long, but another inode.
    pub fn in_copy(&self, position: Position) -> Option<Position> {
        let Position::File { head_crc, head_len, offset, .. } = position;
        let tail = open_copy(Path::new(&self.path), position).ok()??;
        Some(Position::File { inode: tail.identity.1, head_crc, head_len, offset })
    }
}

impl fmt::Display for FileConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let followed = if self.follow { "followed, " } else { "" };
        let logged = if self.log_position { ", logged by position: the file must stay as it is" } else { "" };
        write!(f, "file {}, {followed}{}{logged}", self.path, self.framing)
    }
}

/// See the module.
pub struct File {
    config: FileConfig,
    resume: Resume,
}

impl File {
    /// A source that is not open yet.
    pub fn new(config: FileConfig, resume: Resume) -> File {
        File { config, resume }
    }
}

impl Source for File {
    fn run(self: Box<Self>, out: Output) -> Running {
        let position = self.resume.position;
        let config = Arc::new(self.config);
        Box::pin(async move {
            match config.follow {
                false => smol::unblock(move || read_once(&config, position, &out)).await,
                true => follow(config, position, &out).await,
            }
        })
    }
}

/// A file that is being read. Invariant: `head` holds its first `offset` bytes, up to [`HEAD_BYTES_MAX`].
struct Tail {
    file: fs::File,
    identity: (u64, u64),
    head: Vec<u8>,
    /// Offset in bytes of the next read.
    offset: u64,
    buffer: Vec<u8>,
    /// Bytes that [`Tail::read_durable`] has found or made durable.
    durable: u64,
}

/// What became of a file since the last read.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// There is more to read.
    Grown,
    /// Nothing happened.
    Same,
    /// Another file has taken the name, or none; how many bytes it has.
    Moved { new_bytes: u64 },
    /// It has become shorter and begins as before.
    Shorter,
    /// Its start is another one.
    Rewritten,
}

impl Tail {
    /// Opens a regular file to read it from `offset` on.
    fn open(path: &Path, offset: u64) -> Result<Tail, SourceError> {
        let failed = |action| SourceError::io(action, path.display());
        let metadata = fs::metadata(path).map_err(failed("open"))?;
        if let Some(found) = not_a_file(&metadata) {
            return Err(SourceError::NotAFile { path: path.display().to_string(), found });
        }
        let file = fs::File::open(path).map_err(failed("open"))?;
        let metadata = file.metadata().map_err(failed("open"))?;
        let mut tail = Tail {
            file,
            identity: (metadata.dev(), metadata.ino()),
            head: Vec::new(),
            offset: 0,
            buffer: vec![0; READ_BYTES],
            durable: 0,
        };
        tail.go_to(offset).map_err(failed("read"))?;
        Ok(tail)
    }

    /// Reads on from `offset`.
    fn go_to(&mut self, offset: u64) -> std::io::Result<()> {
        let length = usize::try_from(offset).unwrap_or(usize::MAX).min(HEAD_BYTES_MAX);
        self.head = self.read_head(length)?;
        self.file.seek(SeekFrom::Start(offset))?;
        self.offset = offset;
        Ok(())
    }

    /// The first `length` bytes, or fewer if the file is shorter.
    fn read_head(&self, length: usize) -> std::io::Result<Vec<u8>> {
        let mut head = vec![0; length];
        let mut filled = 0;
        while let Some(room) = head.get_mut(filled..).filter(|room| !room.is_empty()) {
            match self.file.read_at(room, filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        head.truncate(filled);
        Ok(head)
    }

    /// Fills the buffer with what stands before `limit`; zero at the end of the file.
    fn read(&mut self, limit: u64) -> std::io::Result<usize> {
        let readable = usize::try_from(limit.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let room = self.buffer.get_mut(..readable.min(READ_BYTES)).unwrap_or_default();
        let count = loop {
            match self.file.read(room) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        let missing = HEAD_BYTES_MAX.saturating_sub(self.head.len()).min(count);
        self.head.extend_from_slice(self.buffer.get(..missing).unwrap_or_default());
        self.offset += count as u64;
        Ok(count)
    }

    /// As [`Tail::read`], but of what survives a power cut alone: what the log refers to must outlive the log's sync.
    fn read_durable(&mut self, path: &Path) -> Result<usize, SourceError> {
        let failed = || SourceError::io("read", path.display());
        if self.durable <= self.offset {
            let length = self.file.metadata().map_err(failed())?.len();
            if length > self.offset {
                sync(&self.file).map_err(SourceError::sync(path))?;
                if self.durable == 0 {
                    fs::File::open(dir_of(path)).and_then(|dir| sync(&dir)).map_err(SourceError::sync(path))?;
                }
                self.durable = length;
            }
        }
        self.read(self.durable).map_err(failed())
    }

    /// What became of the file since the last read.
    fn look(&self, path: &Path) -> std::io::Result<Look> {
        let length = self.file.metadata()?.len();
        if length != self.offset {
            return Ok(match self.read_head(self.head.len())? == self.head {
                false => Look::Rewritten,
                true if length < self.offset => Look::Shorter,
                true => Look::Grown,
            });
        }
        match fs::metadata(path) {
            Ok(metadata) if (metadata.dev(), metadata.ino()) == self.identity => Ok(Look::Same),
            Ok(metadata) => Ok(Look::Moved { new_bytes: metadata.len() }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Look::Moved { new_bytes: 0 }),
            Err(error) => Err(error),
        }
    }

    /// Looks, and reads on if there is more.
    fn look_and_read(&mut self, path: &Path) -> std::io::Result<(Look, usize)> {
        let look = self.look(path)?;
        let count = if look == Look::Grown { self.read(u64::MAX)? } else { 0 };
        Ok((look, count))
    }

    fn position(&self, offset: u64) -> Position {
        Position::File {
            inode: self.identity.1,
            head_crc: crc32c::crc32c(&self.head),
            head_len: u16::try_from(self.head.len()).unwrap_or(u16::MAX),
            offset,
        }
    }
}

/// Makes a file or a directory durable. On a medium that nobody writes to it is, and the system may say so by an error.
fn sync(file: &fs::File) -> std::io::Result<()> {
    match file.sync_all() {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::ReadOnlyFilesystem) => Ok(()),
        result => result,
    }
}

/// What stands there instead of a regular file.
fn not_a_file(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a directory")
    } else if kind.is_fifo() {
        Some("a pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}

/// The file at `path`, if it is the one of `position`, still long enough or not.
fn open_if_same(path: &Path, position: Position) -> Result<Option<Tail>, SourceError> {
    let Position::File { inode, head_crc, head_len, offset } = position;
    let mut tail = Tail::open(path, 0)?;
    let failed = || SourceError::io("read", path.display());
    let head = tail.read_head(usize::from(head_len)).map_err(failed())?;
    if tail.identity.1 != inode || head.len() != usize::from(head_len) || crc32c::crc32c(&head) != head_crc {
        return Ok(None);
    }
    let length = tail.file.metadata().map_err(failed())?.len();
    tail.go_to(offset.min(length)).map_err(failed())?;
    Ok(Some(tail))
}

/// The file at `path`, if it is a copy of the one of `position`: the same beginning, and at least as long.
fn open_copy(path: &Path, position: Position) -> Result<Option<Tail>, SourceError> {
    let Position::File { head_crc, head_len, offset, .. } = position;
    let inode = fs::metadata(path).map_err(SourceError::io("open", path.display()))?.ino();
    let tail = open_if_same(path, Position::File { inode, head_crc, head_len, offset })?;
    Ok(tail.filter(|tail| tail.offset == offset))
}

/// The file at `path`, if it is the one of `position` or a copy of it, and still long enough.
fn open_same_or_copy(path: &Path, position: Position) -> Result<Option<Tail>, SourceError> {
    let Position::File { offset, .. } = position;
    match open_if_same(path, position)? {
        Some(tail) => Ok((tail.offset == offset).then_some(tail)),
        None => open_copy(path, position),
    }
}

/// The file of `position` under another name beside `path`.
fn find_renamed(path: &Path, position: Position) -> Option<Tail> {
    let Position::File { inode, .. } = position;
    entries_with(path, inode).find_map(|found| open_if_same(&found, position).ok().flatten())
}

fn dir_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The names that a file with this inode has in the directory of `path`.
fn entries_with(path: &Path, inode: u64) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir_of(path)).into_iter().flatten().filter_map(Result::ok);
    entries.filter(move |entry| entry.ino() == inode).map(|entry| entry.path())
}

/// A file with its framing state, and where its runs go.
struct Reading {
    out: Output,
    peer: Arc<str>,
    path: PathBuf,
    config: Arc<FileConfig>,
    framer: Box<dyn Framer>,
    tail: Tail,
    /// Offset in bytes of the first byte that belongs to no message yet.
    taken: u64,
}

impl Reading {
    fn new(out: &Output, config: &Arc<FileConfig>, tail: Tail) -> Reading {
        Reading {
            out: out.clone(),
            peer: config.path.as_str().into(),
            path: PathBuf::from(&config.path),
            config: Arc::clone(config),
            framer: config.framing.framer(tail.offset == 0),
            taken: tail.offset,
            tail,
        }
    }

    async fn connect(&self) -> Result<(), Closed> {
        self.control(RecordKind::Connect, &[]).await
    }

    /// Sends a record that carries the position.
    async fn control(&self, kind: RecordKind, payload: &[u8]) -> Result<(), Closed> {
        let mut run = self.out.run(kind, self.out.now(), Some(&self.peer));
        run.position = Some(self.tail.position(self.taken));
        run.push(payload);
        self.out.send(run).await
    }

    /// Reads, and cuts what was read into messages while the thread's cache has it. Blocks. Gives what `work` said beside
    /// the number of bytes.
    fn read<T>(
        &mut self,
        work: impl FnOnce(&mut Tail, &Path) -> Result<(T, usize), SourceError>,
    ) -> Result<(Framed, T, usize), SourceError> {
        let (what, count) = work(&mut self.tail, &self.path)?;
        let mut framed = self.framed();
        framed.expect(count);
        self.framer.push(self.tail.buffer.get(..count).unwrap_or_default(), &mut framed);
        Ok((framed, what, count))
    }

    /// Reads up to the present end of the file. Blocks where the disk does, and so keeps to one thread: what it reads would
    /// else be fetched from the cache of another core each time.
    async fn read_to_end(&mut self) -> Result<(), SourceError> {
        let log_position = self.config.log_position;
        loop {
            let (framed, (), count) = self.read(|tail, path| match log_position {
                true => Ok(((), tail.read_durable(path)?)),
                false => Ok(((), tail.read(u64::MAX).map_err(SourceError::io("read", path.display()))?)),
            })?;
            if count == 0 {
                return self.tell_if_cut().await;
            }
            self.send(framed).await?;
        }
    }

    /// At the end of a file that stays as it is: what was read of it must still be there.
    async fn tell_if_cut(&mut self) -> Result<(), SourceError> {
        let look = self.tail.look(&self.path).map_err(SourceError::io("read", self.path.display()))?;
        let what = match look {
            Look::Shorter => "the file was cut",
            Look::Rewritten => "the file was rewritten",
            Look::Grown | Look::Same | Look::Moved { .. } => return Ok(()),
        };
        self.break_off(what).await?;
        let reason =
            format!("{what} while it was read, up to byte {}; what it held behind that is lost", self.tail.offset);
        Ok(self.gap(reason).await?)
    }

    /// What takes the messages of the next bytes, stamped with the present time.
    fn framed(&self) -> Framed {
        let framed = self.out.framed(self.out.now(), Some(&self.peer), self.taken);
        if self.config.log_position { framed.referring() } else { framed }
    }

    async fn send(&mut self, framed: Framed) -> Result<(), Closed> {
        self.taken = framed.taken();
        for (mut run, end) in framed.into_runs() {
            run.position = Some(self.tail.position(end));
            self.out.send(run).await?;
        }
        Ok(())
    }

    /// What is there of a message counts.
    async fn finish(&mut self) -> Result<(), Closed> {
        let mut framed = self.framed();
        self.framer.finish(&mut framed);
        self.send(framed).await
    }

    /// What is there of a message is bad.
    async fn break_off(&mut self, why: &str) -> Result<(), Closed> {
        let mut framed = self.framed();
        self.framer.break_off(why, &mut framed);
        self.send(framed).await
    }

    /// The file ended for good.
    async fn end(&mut self) -> Result<(), Closed> {
        self.finish().await?;
        self.control(RecordKind::Disconnect, &[]).await
    }

    /// Goes on at `offset` of the same file, after what was there became something else.
    fn go_to(&mut self, offset: u64) -> Result<(), SourceError> {
        self.tail.go_to(offset).map_err(SourceError::io("read", self.path.display()))?;
        self.taken = offset;
        self.framer = self.config.framing.framer(offset == 0);
        Ok(())
    }

    /// Goes on at the end of the file. Gives its length in bytes.
    fn go_to_end(&mut self) -> Result<u64, SourceError> {
        let length = self.tail.file.metadata().map_err(SourceError::io("read", self.path.display()))?.len();
        self.go_to(length)?;
        Ok(length)
    }

    async fn gap(&self, reason: String) -> Result<(), Closed> {
        tracing::warn!(source = %self.out.name(), path = %self.path.display(), reason, "input may be lost");
        self.control(RecordKind::Gap, &encode(&Gap { reason, messages: None, bytes: None })).await
    }
}

/// Reads a file to its end. All of it is one piece of blocking work, which ends when the queue is closed.
fn read_once(config: &Arc<FileConfig>, position: Option<Position>, out: &Output) -> Result<End, SourceError> {
    let path = Path::new(&config.path);
    let tail = match position {
        None => Tail::open(path, 0)?,
        Some(position) => {
            let Position::File { offset, .. } = position;
            let replaced = || SourceError::Replaced { path: path.display().to_string(), offset };
            open_same_or_copy(path, position)?.ok_or_else(replaced)?
        }
    };
    let mut reading = Reading::new(out, config, tail);
    block_on(async {
        if position.is_none() {
            reading.connect().await?;
        }
        reading.read_to_end().await?;
        reading.end().await?;
        Ok(End::EndOfInput)
    })
}

async fn follow(config: Arc<FileConfig>, position: Option<Position>, out: &Output) -> Result<End, SourceError> {
    let mut reading = begin(out, &config, position, None).await?;
    let mut last_data = Instant::now();
    let mut looks_moved = 0;
    loop {
        // Look before each read: what stands behind the offset may belong to another content.
        let (back, read) = blocking(reading, |reading| {
            let look = |tail: &mut Tail, path: &Path| {
                tail.look_and_read(path).map_err(SourceError::io("read", path.display()))
            };
            reading.read(look)
        })
        .await;
        reading = back;
        let (framed, look, _) = read?;
        reading.send(framed).await?;
        match look {
            Look::Grown => {
                last_data = Instant::now();
                looks_moved = 0;
                continue;
            }
            Look::Same => looks_moved = 0,
            Look::Moved { new_bytes: 0 } => {}
            Look::Moved { .. } if looks_moved < LOOKS_BEFORE_LEAVING => looks_moved += 1,
            Look::Moved { .. } => {
                reading.end().await?;
                let left = reading.tail.identity.1;
                reading = begin(out, &config, None, Some(left)).await?;
                looks_moved = 0;
                continue;
            }
            Look::Shorter => {
                reading.break_off("the file was cut").await?;
                let before = reading.tail.offset;
                let (back, length) = blocking(reading, Reading::go_to_end).await;
                reading = back;
                reading.gap(shorter(before, length?)).await?;
                continue;
            }
            Look::Rewritten => {
                let offset = reading.tail.offset;
                reading.break_off("the file was rewritten").await?;
                reading.control(RecordKind::Disconnect, &[]).await?;
                let (back, gone) = blocking(reading, |reading| reading.go_to(0)).await;
                reading = back;
                gone?;
                let reason = format!(
                    "the file was cut or rewritten after it was read up to byte {offset}; \
                     what was written in the last moment before is lost"
                );
                reading.gap(reason).await?;
                reading.connect().await?;
                continue;
            }
        }
        let idle_flush = config.framing.idle_flush.filter(|_| reading.framer.is_partial());
        if idle_flush.is_some_and(|pause| last_data.elapsed() >= pause) {
            reading.finish().await?;
        }
        smol::Timer::after(idle_flush.unwrap_or(LOOK_INTERVAL).min(LOOK_INTERVAL)).await;
    }
}

/// Does something that may block with what is being read, on a thread that may.
async fn blocking<T: Send + 'static>(
    mut reading: Reading,
    work: impl FnOnce(&mut Reading) -> T + Send + 'static,
) -> (Reading, T) {
    smol::unblock(move || {
        let result = work(&mut reading);
        (reading, result)
    })
    .await
}

/// What there is to follow.
enum Found {
    /// A file that nothing was read of.
    New(Tail),
    /// The file of the position, under its name or another.
    Known(Tail),
    /// Another file than that of the position, which is gone.
    Other(Tail),
}

/// What there is to follow behind `position`, or after the file with inode `left`.
fn find(path: &Path, position: Option<Position>, left: Option<u64>) -> Result<Found, SourceError> {
    let Some(position) = position else {
        let next = left.and_then(|inode| successor(path, inode));
        return Tail::open(next.as_deref().unwrap_or(path), 0).map(Found::New);
    };
    match open_if_same(path, position) {
        Ok(Some(tail)) => Ok(Found::Known(tail)),
        Ok(None) => match find_renamed(path, position) {
            Some(tail) => Ok(Found::Known(tail)),
            None => Tail::open(path, 0).map(Found::Other),
        },
        // It may be renamed; or its disk is not there yet, then it will come back as it was.
        Err(error) => find_renamed(path, position).map(Found::Known).ok_or(error),
    }
}

/// The file that took the name `path` after the one with this inode, if it was renamed in its turn.
fn successor(path: &Path, inode: u64) -> Option<PathBuf> {
    let numbered = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let prefix = format!("{}.", path.file_name()?.to_str()?);
    let number: u32 =
        entries_with(path, inode).find_map(|found| found.file_name()?.to_str()?.strip_prefix(&prefix)?.parse().ok())?;
    let next = numbered(number.checked_sub(1).filter(|next| *next > 0)?);
    next.is_file().then_some(next)
}

/// Opens what there is to follow, behind `position` or after the file with inode `left`, as soon as it is there.
async fn begin(
    out: &Output,
    config: &Arc<FileConfig>,
    position: Option<Position>,
    left: Option<u64>,
) -> Result<Reading, SourceError> {
    let path = Path::new(&config.path);
    let mut missing = Warnings::new();
    let found = loop {
        let place = path.to_owned();
        match smol::unblock(move || find(&place, position, left)).await {
            Ok(found) => break found,
            Err(error @ SourceError::Io { .. }) => {
                if let Some(suppressed) = missing.count(out) {
                    tracing::warn!(source = %out.name(), suppressed, %error, "the source waits for its file");
                }
                smol::Timer::after(LOOK_INTERVAL).await;
            }
            Err(error) => return Err(error),
        }
    };
    let (inode, offset) = match position {
        Some(Position::File { inode, offset, .. }) => (inode, offset),
        None => (0, 0),
    };
    match found {
        Found::New(tail) => {
            let reading = Reading::new(out, config, tail);
            reading.connect().await?;
            Ok(reading)
        }
        Found::Known(tail) => {
            let reading = Reading::new(out, config, tail);
            if reading.taken < offset {
                reading.gap(shorter(offset, reading.taken)).await?;
            }
            Ok(reading)
        }
        Found::Other(tail) => {
            let reading = Reading::new(out, config, tail);
            let reason = format!(
                "the file that was read up to byte {offset} (inode {inode}) is gone or was rewritten; \
                 what it held behind that is lost"
            );
            reading.gap(reason).await?;
            reading.connect().await?;
            Ok(reading)
        }
    }
}

fn shorter(from: u64, to: u64) -> String {
    format!("the file was cut from {from} to {to} bytes; reading goes on at its end")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::super::SourceConfig;
    use super::super::testing::*;
    use super::*;
    use crate::event::Run;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("in.log");
        (dir, path)
    }

    fn text(path: &Path, follow: bool) -> String {
        format!("type = \"file\"\npath = \"{}\"\nfollow = {follow}", path.display())
    }

    fn append(path: &Path, text: &str) {
        fs::OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn offset_of(position: Option<Position>) -> u64 {
        let Some(Position::File { offset, .. }) = position else { panic!("no position") };
        offset
    }

    fn gap_reason(seen: &Seen) -> &str {
        let Seen::Gap(gap) = seen else { panic!("{seen:?}") };
        &gap.reason
    }

    #[test]
    fn a_position_is_found_again_in_a_copy_alone() {
        let (dir, path) = place();
        fs::write(&path, "one\ntwo\n").unwrap();
        let mut source = Harness::start(&text(&path, false));
        source.finish().unwrap();
        let position = source.position().expect("a position");
        let in_copy = |content: &str| {
            let path = dir.path().join("copy.log");
            fs::write(&path, content).unwrap();
            let config = crate::settings::read_document("f.toml", &text(&path, false), |root| {
                root.string("type");
                FileConfig::read(root)
            });
            config.expect("reads").in_copy(position)
        };
        let copied = in_copy("one\ntwo\nthree\n").expect("a copy that has grown");
        assert_eq!(offset_of(Some(copied)), 8);
        let copy = dir.path().join("copy.log");
        assert_ne!(copied, position);
        let mut source = Harness::resume(&text(&copy, false), Some(copied));
        assert_eq!(source.finish().unwrap(), End::EndOfInput);
        assert!(source.seen().contains(&message("three")) && !source.seen().contains(&message("two")));
        for other in ["one\n", "ONE\ntwo\n", ""] {
            assert_eq!(in_copy(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_bounded_file_is_read_to_its_end() {
        let (_dir, path) = place();
        fs::write(&path, "\u{feff}one\r\ntwo\nlast").unwrap();
        let mut source = Harness::start(&text(&path, false));
        assert_eq!(source.finish().unwrap(), End::EndOfInput);
        let expected = [Seen::Connect, message("one"), message("two"), message("last"), Seen::Disconnect];
        assert_eq!(source.seen(), expected);
        assert!(source.runs.iter().all(|run| run.peer.as_deref() == path.to_str()));
        assert_eq!(offset_of(source.position()), 16);
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let (dir, path) = place();
        let error = Harness::start(&text(&path, false)).finish().expect_err("missing").to_string();
        assert!(error.starts_with(&format!("cannot open {}: No such file", path.display())), "{error}");
        for follow in [false, true] {
            let error = Harness::start(&text(dir.path(), follow)).finish().expect_err("directory").to_string();
            assert!(error.ends_with("it is a directory, not a regular file: set `path` to a file"), "{error}");
        }
    }

    #[test]
    fn a_bounded_file_that_is_cut_while_it_is_read_leaves_a_gap() {
        let (_dir, path) = place();
        fs::write(&path, "a line\n".repeat(1_000_000)).unwrap();
        // The reader waits for room.
        let mut source = Harness::with_queue(&text(&path, false), None, 64 << 10);
        source.until(|s| s.seen().len() > 1000);
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(2000).unwrap();
        source.finish().unwrap();
        let seen = source.seen();
        let reason = seen.iter().find(|seen| matches!(seen, Seen::Gap(_))).map(gap_reason);
        assert!(reason.is_some_and(|reason| reason.starts_with("the file was cut while it was read, up to byte ")));
        assert!(seen.len() < 1_000_000, "{}", seen.len());
    }

    #[test]
    fn a_bounded_file_that_was_replaced_is_an_error() {
        let (dir, path) = place();
        fs::write(&path, "one\ntwo\n").unwrap();
        let mut source = Harness::start(&text(&path, false));
        source.finish().unwrap();
        let position = source.position();
        fs::write(&path, "ONE\ntwo\nthree\n").unwrap();
        let error = Harness::resume(&text(&path, false), position).finish().expect_err("rewritten").to_string();
        assert!(error.contains("was replaced or cut since it was read up to byte 8"), "{error}");
        fs::write(&path, "one\n").unwrap();
        Harness::resume(&text(&path, false), position).finish().expect_err("cut");
        let other = dir.path().join("other");
        fs::write(&other, "two\none\nthree\n").unwrap();
        fs::rename(&other, &path).unwrap();
        Harness::resume(&text(&path, false), position).finish().expect_err("another file");
    }

    #[test]
    fn reading_goes_on_in_a_copy() {
        let (dir, path) = place();
        fs::write(&path, "one\ntwo\n").unwrap();
        let mut source = Harness::start(&text(&path, false));
        source.finish().unwrap();
        let position = source.position();
        let copy = dir.path().join("copy");
        let SourceConfig::File(config) = read(&text(&path, false)) else { panic!("a file") };
        fs::write(&copy, "one\ntwo\n").unwrap();
        fs::rename(&copy, &path).unwrap();
        assert!(!config.has_more(position));
        fs::write(&copy, "one\ntwo\nthree\n").unwrap();
        fs::rename(&copy, &path).unwrap();
        assert!(config.has_more(position));
        let mut source = Harness::resume(&text(&path, false), position);
        source.finish().unwrap();
        assert!(source.seen().contains(&message("three")) && !source.seen().contains(&message("two")));
    }

    /// Each message stands where its run's reference says.
    fn references_lead_to_messages(content: &[u8], runs: &[Run]) {
        for run in runs {
            let Some(reference) = &run.reference else {
                assert_ne!(run.kind, RecordKind::Data);
                continue;
            };
            let mut at = reference.offset as usize;
            for (record, gap) in run.records().zip(std::iter::once(0).chain(reference.gaps())) {
                at += gap as usize;
                assert_eq!(&content[at..at + record.len()], record);
                at += record.len();
            }
            assert_eq!(run.span(), Some((reference.offset, at as u64)));
            assert_eq!(reference.gaps().count() + 1, run.len());
            assert_eq!(reference.crc, crc32c::crc32c(&run.payload));
        }
    }

    /// Kills a run behind each of its records in turn: together they are what one run gives.
    fn resumes_anywhere(content: &[u8], more: &str) -> Result<(), TestCaseError> {
        let (_dir, path) = place();
        fs::write(&path, content).unwrap();
        let text = format!("{}\n{more}", text(&path, false));
        let mut whole = Harness::start(&text);
        whole.finish().unwrap();
        if more.contains("position") {
            references_lead_to_messages(content, &whole.runs);
        } else {
            prop_assert!(whole.runs.iter().all(|run| run.reference.is_none()));
        }
        for kept in 1..whole.runs.len() {
            let before: Vec<Run> = whole.runs[..kept].to_vec();
            let position = before.last().unwrap().position;
            prop_assert!(position.is_some());
            let mut after = Harness::resume(&text, position);
            after.finish().unwrap();
            if more.contains("position") {
                references_lead_to_messages(content, &after.runs);
            }
            let mut seen: Vec<Seen> = before.iter().flat_map(seen).collect();
            seen.extend(after.seen());
            prop_assert_eq!(seen, whole.seen());
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn reading_goes_on_exactly_behind_every_position(
            lines in prop::collection::vec("[a-c]{0,300}(\r\n|\n)", 0..400),
            last in "[a-c]{0,20}",
        ) {
            let content = lines.concat() + &last;
            // Overlong lines alternate with good ones, so that there are many runs.
            resumes_anywhere(content.as_bytes(), "max_length = \"150B\"")?;
            resumes_anywhere(content.as_bytes(), "max_length = \"150B\"\nlog = \"position\"")?;
        }
    }

    #[test]
    fn reading_goes_on_in_a_large_file_with_messages_longer_than_a_read() {
        let mut content = Vec::new();
        for i in 0..8u8 {
            content.extend(std::iter::repeat_n(b'a' + i, 200_000));
            content.push(b'\n');
        }
        resumes_anywhere(&content, "").unwrap();
        resumes_anywhere(&content, "log = \"position\"").unwrap();
    }

    #[test]
    fn references_lead_to_the_messages_of_every_framing() {
        let lines = "\u{feff}one\r\n\r\n\ntwo\n\u{feff}three\n".repeat(9_000) + "last\r";
        let lengths: Vec<u8> =
            (0..60_000u32).flat_map(|n| [&[(n % 7) as u8][..], &b"abcdefg"[..n as usize % 7]].concat()).collect();
        for (content, framing) in [
            (lines.clone().into_bytes(), ""),
            (lines.into_bytes(), "framing = \"delimiter\"\ndelimiter = \"\\r\\n\""),
            (lengths, "framing = \"length\"\nlength = \"u8\""),
            (b"abcde".repeat(60_000), "framing = \"fixed\"\nsize = 7"),
        ] {
            let (_dir, path) = place();
            fs::write(&path, &content).unwrap();
            let mut source = Harness::start(&format!("{}\n{framing}\nlog = \"position\"", text(&path, false)));
            source.finish().unwrap();
            references_lead_to_messages(&content, &source.runs);
            let messages: usize = source.runs.iter().filter(|run| run.reference.is_some()).map(Run::len).sum();
            assert!(messages > 9_000, "{framing}: {messages}");
            // Messages at one distance cost nothing each.
            let stretches =
                source.runs.iter().filter_map(|run| run.reference.as_ref()).map(|it| it.gaps.len()).sum::<usize>();
            assert!(!framing.contains("fixed") || stretches < 20, "{stretches}");
        }
    }

    #[test]
    fn a_file_that_grows_while_positions_are_logged_is_read_to_its_end() {
        let (_dir, path) = place();
        append(&path, &"x".repeat(READ_BYTES));
        let mut tail = Tail::open(&path, 0).unwrap();
        assert_eq!(tail.read_durable(&path).unwrap(), READ_BYTES);
        assert_eq!(tail.durable, READ_BYTES as u64);
        append(&path, "more");
        assert_eq!(tail.read_durable(&path).unwrap(), 4);
        assert_eq!((tail.durable, tail.offset), (READ_BYTES as u64 + 4, READ_BYTES as u64 + 4));
        assert_eq!(tail.read_durable(&path).unwrap(), 0);
        fs::write(&path, "").unwrap();
        assert_eq!(tail.read_durable(&path).unwrap(), 0);
    }

    #[test]
    fn positions_are_logged_of_files_that_stay_alone() {
        let (_dir, path) = place();
        let shown = problems(&format!("{}\nlog = \"position\"", text(&path, true)));
        assert!(shown.contains("needs a file that stays as it is"), "{shown}");
        let shown = problems("type = \"stdin\"\nlog = \"position\"");
        assert!(shown.contains("`log = \"position\"` is for files") && shown.contains("type \"stdin\""), "{shown}");
        read("type = \"stdin\"\nlog = \"payload\"");
        assert!(read(&format!("{}\nlog = \"position\"", text(&path, false))).logs_positions());
        assert!(!read(&format!("{}\nlog = \"payload\"", text(&path, false))).logs_positions());
    }

    #[test]
    fn following_waits_for_the_file_and_for_more() {
        let (_dir, path) = place();
        let mut source = Harness::start(&text(&path, true));
        eventually(|| source.count(|c| &c.warnings) > 0);
        append(&path, "one\ntw");
        source.until(|s| s.seen().contains(&message("one")));
        append(&path, "o\n");
        assert_eq!(source.until_seen(3), [Seen::Connect, message("one"), message("two")]);
        assert_eq!(offset_of(source.position()), 8);
    }

    #[test]
    fn following_goes_through_renaming() {
        let (dir, path) = place();
        append(&path, "one\n");
        let mut source = Harness::start(&text(&path, true));
        source.until(|s| s.seen().contains(&message("one")));
        let rotated = dir.path().join("in.log.1");
        fs::rename(&path, &rotated).unwrap();
        // Writers go on with the old file until they reopen it.
        append(&rotated, "two\n");
        append(&path, "");
        source.until(|s| s.seen().contains(&message("two")));
        append(&rotated, "three, no end");
        append(&path, "new one\n");
        source.until(|s| s.seen().contains(&message("new one")));
        let expected = [
            Seen::Connect,
            message("one"),
            message("two"),
            message("three, no end"),
            Seen::Disconnect,
            Seen::Connect,
            message("new one"),
        ];
        assert_eq!(source.seen(), expected);
        assert_eq!(offset_of(source.position()), 8);
    }

    #[test]
    fn following_goes_through_copytruncate() {
        let (_dir, path) = place();
        append(&path, "old one\nold two\npart");
        let mut source = Harness::start(&text(&path, true));
        source.until_seen(3);
        // In one go, so that the file may also be longer than before when it is looked at.
        fs::write(&path, "new one, longer than all that the file had before\n").unwrap();
        source.until(|s| s.seen().len() >= 8);
        let seen = source.seen();
        assert_eq!(seen[..3], [Seen::Connect, message("old one"), message("old two")]);
        assert_eq!(seen[3], Seen::Bad("the file was rewritten after 4 bytes of a message".to_owned()));
        assert_eq!(seen[4], Seen::Disconnect);
        assert!(gap_reason(&seen[5]).contains("after it was read up to byte 20"), "{seen:?}");
        assert_eq!(seen[6..], [Seen::Connect, message("new one, longer than all that the file had before")]);
        fs::write(&path, "").unwrap();
        append(&path, "again\n");
        source.until(|s| s.seen().contains(&message("again")));
    }

    #[test]
    fn a_followed_file_goes_on_after_a_stop() {
        let (_dir, path) = place();
        append(&path, "one\ntwo\npart");
        let mut source = Harness::start(&text(&path, true));
        source.until_seen(3);
        source.stop();
        append(&path, "ial\nthree\n");
        let mut source = Harness::resume(&text(&path, true), source.position());
        assert_eq!(source.until_seen(2), messages(&["partial", "three"]));
    }

    #[test]
    fn a_file_that_was_renamed_during_a_stop_is_finished_first() {
        let (dir, path) = place();
        append(&path, "one\n");
        let mut source = Harness::start(&text(&path, true));
        source.until_seen(2);
        source.stop();
        append(&path, "two\n");
        fs::rename(&path, dir.path().join("in.log-20260101")).unwrap();
        append(&path, "new\n");
        let mut source = Harness::resume(&text(&path, true), source.position());
        let expected = [message("two"), Seen::Disconnect, Seen::Connect, message("new")];
        assert_eq!(source.until_seen(4), expected);
    }

    #[test]
    fn files_that_were_renamed_several_times_are_read_in_order() {
        let (dir, path) = place();
        append(&path, "one\n");
        let mut source = Harness::start(&text(&path, true));
        source.until_seen(2);
        source.stop();
        let old = |number| dir.path().join(format!("in.log.{number}"));
        append(&path, "two\n");
        fs::rename(&path, old(3)).unwrap();
        fs::write(old(2), "three\n").unwrap();
        fs::write(old(1), "four\n").unwrap();
        append(&path, "five\n");
        let mut source = Harness::resume(&text(&path, true), source.position());
        source.until(|s| s.seen().contains(&message("five")));
        let mut found = source.seen();
        found.retain(|seen| matches!(seen, Seen::Message(_)));
        assert_eq!(found, messages(&["two", "three", "four", "five"]));
    }

    #[test]
    fn a_file_that_is_away_for_a_while_is_awaited_and_goes_on() {
        let (dir, path) = place();
        append(&path, "one\n");
        let mut source = Harness::start(&text(&path, true));
        source.until_seen(2);
        source.stop();
        let away = tempfile::tempdir_in(dir.path()).unwrap();
        fs::rename(&path, away.path().join("in.log")).unwrap();
        let mut source = Harness::resume(&text(&path, true), source.position());
        eventually(|| source.count(|c| &c.warnings) > 0);
        fs::rename(away.path().join("in.log"), &path).unwrap();
        append(&path, "two\n");
        assert_eq!(source.until_seen(1), messages(&["two"]));
    }

    #[test]
    fn a_file_that_is_gone_after_a_stop_leaves_a_gap() {
        let (dir, path) = place();
        append(&path, "one\n");
        let mut source = Harness::start(&text(&path, true));
        source.until_seen(2);
        source.stop();
        // The old inode must not be used again at once.
        let other = dir.path().join("elsewhere");
        fs::write(&other, "new\n").unwrap();
        fs::rename(&other, &path).unwrap();
        let mut source = Harness::resume(&text(&path, true), source.position());
        let seen = source.until_seen(3);
        assert!(gap_reason(&seen[0]).contains("read up to byte 4"), "{seen:?}");
        assert_eq!(seen[1..], [Seen::Connect, message("new")]);
    }

    #[test]
    fn a_file_that_lost_its_tail_goes_on_at_its_end() {
        let (_dir, path) = place();
        let head = "x".repeat(1500);
        append(&path, &format!("{head}\nlost\n"));
        let mut source = Harness::start(&text(&path, true));
        source.until_seen(3);
        let cut = || fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1501).unwrap();
        cut();
        source.until_seen(4);
        append(&path, "next\n");
        let seen = source.until_seen(5);
        assert!(gap_reason(&seen[3]).contains("from 1506 to 1501 bytes"), "{seen:?}");
        assert_eq!(seen[4], message("next"));
        source.stop();
        cut();
        let mut source = Harness::resume(&text(&path, true), source.position());
        source.until_seen(1);
        append(&path, "last\n");
        let seen = source.until_seen(2);
        assert!(gap_reason(&seen[0]).contains("from 1506 to 1501 bytes"), "{seen:?}");
        assert_eq!(seen[1], message("last"));
    }

    #[test]
    fn idle_flush_ends_a_line_of_a_followed_file() {
        let (_dir, path) = place();
        append(&path, "no end");
        let mut source = Harness::start(&format!("{}\nidle_flush = \"10ms\"", text(&path, true)));
        assert_eq!(source.until_seen(2), [Seen::Connect, message("no end")]);
        assert_eq!(offset_of(source.position()), 6);
    }
}
