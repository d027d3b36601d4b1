//! The thread of the files, and damage to them.

use super::*;
use crate::kv::{HostPages, Layout, PageStore};
use llmcc_abi::StateDesc;
use std::fs;
use std::path::PathBuf;

const PATIENCE: Duration = Duration::from_secs(20);

fn temporary(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("llmcc-disk-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

/// A cache with one state, and a sequence of `n` tokens in it whose pages have other bytes each.
fn sequence(n: usize) -> (Kv, SeqId, Layout) {
    let descs = [StateDesc { kv_heads: 1, key_dim: 1, bytes: 64, ..StateDesc::default() }];
    let layout = Layout::reserved(&descs, 1 << 14).unwrap();
    let mut pages = HostPages::new(&descs, &layout).unwrap();
    (0..layout.groups[0].pages as u32).for_each(|page| pages.load(0, page, &[page as u8; 64]).unwrap());
    let mut kv = Kv::new(Box::new(pages), layout.clone(), 1 << 14);
    let seq = kv.seq_new().unwrap();
    let slot = kv.slot(seq).unwrap();
    kv.reserve(0, &[(slot, n)], n).unwrap();
    (0..n).for_each(|token| kv.commit(slot, 0, token as i32));
    (kv, seq, layout)
}

/// The parts of a path, or `None` where one cannot be read.
fn read(disk: &Disk, path: Path) -> Option<Vec<Saved>> {
    disk.read(3, path);
    let mut parts = vec![];
    loop {
        let Read { ticket, part, last } = disk.take(PATIENCE).expect("an answer");
        assert_eq!(ticket, 3);
        parts.push(part?.0);
        if last {
            return Some(parts);
        }
    }
}

#[test]
fn sequences_survive_the_process() {
    let (path, tokens) = (temporary("survive"), 3 * PART + 40);
    let (mut kv, seq, layout) = sequence(tokens);
    let all = kv.tokens(seq).unwrap().to_vec();
    let disk = Disk::open(&path, [1; 32], &layout.groups, u64::MAX).unwrap();
    disk.write(&mut kv, seq, 7).unwrap();
    disk.write(&mut kv, seq, 7).unwrap();
    drop(disk);
    let disk = Disk::open(&path, [1; 32], &layout.groups, u64::MAX).unwrap();
    assert_eq!((disk.counts().parts, disk.find(8, &all, 0)), (4, None));
    let found = disk.find(7, &all, 0).unwrap();
    // The last tokens do not fill a page.
    assert_eq!((found.tokens, found.parts.len()), (3 * PART + 32, 4));
    assert!(disk.find(7, &all, found.tokens - GRAIN).is_some() && disk.find(7, &all, found.tokens - 1).is_none());
    let parts = read(&disk, found.clone()).unwrap();
    let back = kv.seq_new().unwrap();
    kv.restore(back, &parts).unwrap();
    let len = found.tokens;
    assert_eq!(kv.save(back, (0, len), true).unwrap().pages, kv.save(seq, (0, len), false).unwrap().pages);
    // Another model, or other code, has a folder of its own.
    let other = Disk::open(&path, [2; 32], &layout.groups, u64::MAX).unwrap();
    assert_eq!(other.find(7, &all, 0), None);
    drop((disk, other));
    fs::remove_dir_all(&path).unwrap();
}

#[test]
fn files_are_bounded_and_checked() {
    let path = temporary("bounded");
    let (mut kv, seq, layout) = sequence(8 * PART);
    let all = kv.tokens(seq).unwrap().to_vec();
    let disk = Disk::open(&path, [1; 32], &layout.groups, u64::MAX).unwrap();
    disk.write(&mut kv, seq, 0).unwrap();
    disk.settle();
    let bytes = disk.counts().bytes;
    drop(disk);
    // The end of the sequence goes first.
    let disk = Disk::open(&path, [1; 32], &layout.groups, bytes / 2).unwrap();
    assert!(disk.counts().bytes <= bytes / 2);
    let found = disk.find(0, &all, 0).unwrap();
    assert_eq!((found.parts.len(), disk.counts().parts), (4, 4));
    let size = |path: &FilePath| -> u64 {
        fs::read_dir(path).unwrap().map(|e| e.unwrap()).map(|e| e.metadata().unwrap().len()).sum()
    };
    let folder = fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
    assert_eq!(size(&folder), disk.counts().bytes);
    // A damaged part, and all behind it, are gone.
    let damaged = folder.join(format!("{}.part", folder::hex(&found.parts[1].0)));
    let mut bytes = fs::read(&damaged).unwrap();
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    fs::write(&damaged, bytes).unwrap();
    assert!(read(&disk, found.clone()).is_none());
    let counts = disk.counts();
    assert_eq!((counts.parts, counts.failed), (1, 1));
    assert!(counts.error.unwrap().contains("damaged"));
    assert_eq!(disk.find(0, &all, 0).unwrap().tokens, PART);
    // So is one that somebody deleted.
    fs::remove_file(folder.join(format!("{}.part", folder::hex(&found.parts[0].0)))).unwrap();
    assert!(read(&disk, disk.find(0, &all, 0).unwrap()).is_none());
    assert_eq!(disk.find(0, &all, 0), None);
    disk.write(&mut kv, seq, 0).unwrap();
    disk.settle();
    assert_eq!(disk.find(0, &all, 0).unwrap().parts.len(), 4);
    disk.forget(3);
    drop(disk);
    fs::remove_dir_all(&path).unwrap();
}
