//! LMDB with authenticated pages: `heed3` over LMDB master3, a tag on every page, checked when the page is read, and no
//! other check.

use std::collections::BTreeMap;
use std::path::Path;

use aead::consts::{U0, U12, U16, U32};
use aead::{AeadCore, AeadInPlace, Key, KeyInit, KeySizeUser, Nonce, Tag};
use chacha20poly1305::ChaCha20Poly1305;
use heed3::types::Bytes;
use heed3::{CommitOrAbort, EncryptedDatabase, EncryptedEnv, EnvOpenOptions};
use heed3_bench::{Contender, Cost, FLIP_KEYS, Res, Subject, cost, run, value};

const MAP_BYTES: usize = 8 << 30;

/// A page's "encryption" that only adds its CRC32C: the cheapest tag that finds every single flipped bit.
struct Crc;

impl KeySizeUser for Crc {
    type KeySize = U32;
}

impl KeyInit for Crc {
    fn new(_: &Key<Crc>) -> Crc {
        Crc
    }
}

impl AeadCore for Crc {
    type NonceSize = U12;
    type TagSize = U16;
    type CiphertextOverhead = U0;
}

impl Crc {
    fn tag(nonce: &Nonce<Crc>, page: &[u8]) -> Tag<Crc> {
        let mut tag = Tag::<Crc>::default();
        tag[..4].copy_from_slice(&crc32c::crc32c_append(crc32c::crc32c(nonce), page).to_le_bytes());
        tag
    }
}

impl AeadInPlace for Crc {
    fn encrypt_in_place_detached(&self, nonce: &Nonce<Crc>, _: &[u8], page: &mut [u8]) -> aead::Result<Tag<Crc>> {
        Ok(Crc::tag(nonce, page))
    }

    fn decrypt_in_place_detached(
        &self,
        nonce: &Nonce<Crc>,
        _: &[u8],
        page: &mut [u8],
        tag: &Tag<Crc>,
    ) -> aead::Result<()> {
        if Crc::tag(nonce, page) == *tag { Ok(()) } else { Err(aead::Error) }
    }
}

/// Key and value as long as Forebay stores them, but for the CRC; spread over the file as its key groups are.
fn stored(round: u64, key: u64) -> (Vec<u8>, Vec<u8>) {
    let number = key.to_be_bytes();
    let lmdb_key = [&[0, 0, 0, 7], &[(crc32c::crc32c(&number) % 128) as u8][..], &[0; 8], &number].concat();
    (lmdb_key, value(round, key))
}

/// `heed3` with tags on its pages, and nothing else: what would replace Forebay's own checks.
struct Heed3 {
    env: EncryptedEnv,
    db: EncryptedDatabase<'static, Bytes, Bytes>,
}

impl Heed3 {
    fn open<A: aead::AeadMutInPlace + KeyInit>(dir: &Path) -> Res<Heed3> {
        std::fs::create_dir_all(dir)?;
        // SAFETY: this process alone opens the environment, with the default flags.
        let env = unsafe {
            EnvOpenOptions::new().map_size(MAP_BYTES).max_dbs(4).open_encrypted::<A, _>(Key::<A>::default(), dir)?
        };
        let open = env.open_databases_and_commit(env.read_txn()?, |opener, txn| {
            opener.open_database::<Bytes, Bytes>(txn, Some("state")).map(CommitOrAbort::<_, ()>::Commit)
        })?;
        let db = match open.commit().flatten() {
            Some(db) => db,
            None => env
                .create_databases_and_commit(env.write_txn()?, |opener, txn| {
                    opener.create_database::<Bytes, Bytes>(txn, Some("state")).map(CommitOrAbort::<_, ()>::Commit)
                })?
                .commit()
                .ok_or("the database is not there")?,
        };
        Ok(Heed3 { env, db })
    }
}

impl Subject for Heed3 {
    fn commit(&mut self, round: u64, keys: &[u64]) -> Res<Cost> {
        let changes: BTreeMap<Vec<u8>, Vec<u8>> = keys.iter().map(|key| stored(round, *key)).collect();
        cost(|| {
            let mut txn = self.env.write_txn()?;
            for (key, value) in &changes {
                self.db.put(&mut txn, key, value)?;
            }
            Ok(txn.commit()?)
        })
    }

    fn read(&mut self, keys: &[u64]) -> Res<()> {
        let mut txn = self.env.read_txn()?;
        for key in keys {
            self.db.get(&mut txn, &stored(0, *key).0)?.ok_or("a key is not there")?;
        }
        Ok(())
    }
}

fn check<A: aead::AeadMutInPlace + KeyInit>(dir: &Path) -> Res<u32> {
    let subject = Heed3::open::<A>(dir)?;
    let mut crc = 0;
    let mut txn = subject.env.read_txn()?;
    for entry in subject.db.iter(&mut txn)? {
        let (key, value) = entry?;
        crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, key), value);
    }
    drop(txn);
    // What a walk over the leaves finds must be found by a look-up too.
    let mut txn = subject.env.read_txn()?;
    for key in 0..FLIP_KEYS {
        subject.db.get(&mut txn, &stored(0, key).0)?.ok_or("a key is not there")?;
    }
    Ok(crc)
}

fn contender<A: aead::AeadMutInPlace + KeyInit>(name: &'static str) -> Contender {
    let open = |dir: &Path| -> Res<Box<dyn Subject>> { Ok(Box::new(Heed3::open::<A>(dir)?)) };
    Contender { name, open, check: check::<A> }
}

fn main() -> Res<()> {
    run(&[contender::<ChaCha20Poly1305>("heed3-chacha20poly1305"), contender::<Crc>("heed3-crc32c")])
}
