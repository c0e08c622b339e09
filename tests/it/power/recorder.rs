//! A file system in memory behind FUSE that records every change and every sync, in the order in which they came.
//!
//! It lies below everything that Forebay writes with: LMDB's `pwrite`, `fdatasync` and writes through `O_DSYNC` (which
//! reach it as a write and a sync), the log's and the sinks' files. What a power cut could leave is built from the
//! record afterwards (`medium.rs`), so that one run gives thousands of cuts.
//!
//! Looking up a name that begins with [`MARK`] in the root leaves a mark in the record: so a process says how far it is.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};

/// How names of marks begin.
pub const MARK: &str = "mark.";
/// The root directory's number.
pub const ROOT: u64 = 1;

/// A change, a sync or a mark. Files and directories are told apart by their numbers.
#[derive(Debug)]
pub enum Op {
    Create {
        parent: u64,
        name: OsString,
        inode: u64,
        is_dir: bool,
    },
    Write {
        inode: u64,
        offset: u64,
        data: Vec<u8>,
    },
    Resize {
        inode: u64,
        length: u64,
    },
    Rename {
        from: (u64, OsString),
        to: (u64, OsString),
        inode: u64,
    },
    Remove {
        parent: u64,
        name: OsString,
        inode: u64,
    },
    /// Of a file's content and length, or of a directory's entries.
    Sync {
        inode: u64,
    },
    Mark(String),
}

enum Node {
    File { bytes: Vec<u8>, links: u32 },
    Dir(BTreeMap<OsString, u64>),
}

/// The files as they are, and how they came to be so. Numbers are places in `nodes`, from one on.
struct Live {
    nodes: Vec<Node>,
    ops: Vec<Op>,
    failure: Option<SyncFailure>,
}

/// A sync that fails, once.
#[derive(Clone, Copy, Debug)]
pub struct SyncFailure {
    /// How many succeed before.
    pub after: u64,
    pub errno: Errno,
}

impl Live {
    fn node(&mut self, inode: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(inode as usize - 1).ok_or(Errno::ENOENT)
    }

    fn file(&mut self, inode: u64) -> Result<&mut Vec<u8>, Errno> {
        match self.node(inode)? {
            Node::File { bytes, .. } => Ok(bytes),
            Node::Dir(_) => Err(Errno::EISDIR),
        }
    }

    fn dir(&mut self, inode: u64) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        match self.node(inode)? {
            Node::Dir(entries) => Ok(entries),
            Node::File { .. } => Err(Errno::ENOTDIR),
        }
    }

    fn find(&mut self, parent: u64, name: &OsStr) -> Result<u64, Errno> {
        self.dir(parent)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    fn attr(&mut self, inode: u64) -> Result<FileAttr, Errno> {
        let (size, kind, perm, nlink) = match self.node(inode)? {
            Node::File { bytes, links } => (bytes.len() as u64, FileType::RegularFile, 0o644, *links),
            Node::Dir(_) => (4096, FileType::Directory, 0o755, 2),
        };
        Ok(FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn create(&mut self, parent: u64, name: &OsStr, is_dir: bool) -> Result<FileAttr, Errno> {
        let inode = self.nodes.len() as u64 + 1;
        if self.dir(parent)?.insert(name.to_owned(), inode).is_some() {
            return Err(Errno::EEXIST);
        }
        self.nodes.push(if is_dir { Node::Dir(BTreeMap::new()) } else { Node::File { bytes: Vec::new(), links: 1 } });
        self.ops.push(Op::Create { parent, name: name.to_owned(), inode, is_dir });
        self.attr(inode)
    }

    fn resize(&mut self, inode: u64, length: u64) -> Result<(), Errno> {
        let bytes = self.file(inode)?;
        if bytes.len() as u64 != length {
            bytes.resize(length as usize, 0);
            self.ops.push(Op::Resize { inode, length });
        }
        Ok(())
    }

    fn write(&mut self, inode: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let bytes = self.file(inode)?;
        let (start, end) = (offset as usize, offset as usize + data.len());
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(data);
        self.ops.push(Op::Write { inode, offset, data: data.to_owned() });
        Ok(())
    }

    fn sync(&mut self, inode: u64) -> Result<(), Errno> {
        match &mut self.failure {
            Some(SyncFailure { after: 0, errno }) => {
                let errno = *errno;
                self.failure = None;
                return Err(errno);
            }
            Some(SyncFailure { after, .. }) => *after -= 1,
            None => {}
        }
        self.ops.push(Op::Sync { inode });
        Ok(())
    }

    fn remove(&mut self, parent: u64, name: &OsStr, is_dir: bool) -> Result<(), Errno> {
        let inode = self.find(parent, name)?;
        match self.node(inode)? {
            Node::Dir(entries) if is_dir && !entries.is_empty() => return Err(Errno::ENOTEMPTY),
            Node::Dir(_) if !is_dir => return Err(Errno::EISDIR),
            Node::Dir(_) => {}
            Node::File { .. } if is_dir => return Err(Errno::ENOTDIR),
            Node::File { links, .. } => *links = 0,
        }
        self.dir(parent)?.remove(name);
        self.ops.push(Op::Remove { parent, name: name.to_owned(), inode });
        Ok(())
    }

    fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Result<(), Errno> {
        let inode = self.find(from.0, from.1)?;
        if let Ok(replaced) = self.find(to.0, to.1) {
            match self.node(replaced)? {
                Node::File { links, .. } => *links = 0,
                Node::Dir(entries) if entries.is_empty() => {}
                Node::Dir(_) => return Err(Errno::ENOTEMPTY),
            }
        }
        self.dir(from.0)?.remove(from.1);
        self.dir(to.0)?.insert(to.1.to_owned(), inode);
        self.ops.push(Op::Rename { from: (from.0, from.1.to_owned()), to: (to.0, to.1.to_owned()), inode });
        Ok(())
    }
}

/// A mounted recording file system; [`Recorder::finish`] gives the record.
pub struct Recorder {
    live: Arc<Mutex<Live>>,
    mounted: BackgroundSession,
    pub root: PathBuf,
}

impl Recorder {
    /// # Errors
    /// This system or this user cannot mount a FUSE file system.
    pub fn mount(root: PathBuf, failure: Option<SyncFailure>) -> io::Result<Recorder> {
        std::fs::create_dir_all(&root)?;
        let live = Arc::new(Mutex::new(Live { nodes: vec![Node::Dir(BTreeMap::new())], ops: Vec::new(), failure }));
        let mounted = Session::new(Fuse(Arc::clone(&live)), &root, &Config::default())?.spawn()?;
        Ok(Recorder { live, mounted, root })
    }

    /// Unmounts; every process that used it must have ended.
    pub fn finish(self) -> Vec<Op> {
        self.mounted.umount_and_join().expect("nobody uses the file system any more");
        std::mem::take(&mut self.live.lock().unwrap_or_else(PoisonError::into_inner).ops)
    }
}

/// Leaves a mark in the record of the file system that is mounted at `root`.
pub fn mark(root: &Path, text: &str) {
    let absent = std::fs::metadata(root.join(format!("{MARK}{text}")));
    assert!(absent.is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
}

struct Fuse(Arc<Mutex<Live>>);

/// Nothing but file contents is cached by the kernel, so every look-up gets here.
const TTL: Duration = Duration::ZERO;

impl Fuse {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn done(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn entry(reply: ReplyEntry, result: Result<FileAttr, Errno>) {
    match result {
        Ok(attr) => reply.entry(&TTL, &attr, Generation(0)),
        Err(errno) => reply.error(errno),
    }
}

impl Filesystem for Fuse {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut live = self.live();
        if let Some(text) = name.to_str().and_then(|name| name.strip_prefix(MARK)) {
            live.ops.push(Op::Mark(text.to_owned()));
            return reply.error(Errno::ENOENT);
        }
        let found = live.find(parent.0, name).and_then(|inode| live.attr(inode));
        entry(reply, found);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.live().attr(inode.0) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut live = self.live();
        let resized = size.map_or(Ok(()), |length| live.resize(inode.0, length));
        match resized.and_then(|()| live.attr(inode.0)) {
            Ok(attr) => reply.attr(&TTL, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _mode: u32, _umask: u32, reply: ReplyEntry) {
        entry(reply, self.live().create(parent.0, name, true));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.live().create(parent.0, name, false) {
            Ok(attr) => reply.created(&TTL, &attr, Generation(0), FileHandle(0), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.live().remove(parent.0, name, false));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(reply, self.live().remove(parent.0, name, true));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let plain = if flags.is_empty() { Ok(()) } else { Err(Errno::EINVAL) };
        done(reply, plain.and_then(|()| self.live().rename((parent.0, name), (new_parent.0, new_name))));
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.live().file(inode.0) {
            Ok(bytes) => {
                let start = bytes.len().min(offset as usize);
                let end = bytes.len().min(offset as usize + size as usize);
                reply.data(&bytes[start..end]);
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.live().write(inode.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Closing a file makes nothing durable.
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        done(reply, self.live().sync(inode.0));
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        done(reply, self.live().sync(inode.0));
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut live = self.live();
        let entries = match live.dir(inode.0) {
            Ok(entries) => entries.clone(),
            Err(errno) => return reply.error(errno),
        };
        let dots = [(OsString::from("."), inode.0), (OsString::from(".."), ROOT)];
        let all = dots.into_iter().chain(entries);
        for (place, (name, inode)) in all.enumerate().skip(offset as usize) {
            let kind = match live.node(inode) {
                Ok(Node::File { .. }) => FileType::RegularFile,
                _ => FileType::Directory,
            };
            if reply.add(INodeNo(inode), place as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        // As much room as anybody asks for.
        reply.statfs(1 << 24, 1 << 24, 1 << 24, 1 << 20, 1 << 20, 4096, 255, 4096);
    }

    fn access(&self, _: &Request, _: INodeNo, _: fuser::AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }
}
