//! Writes to the memory of pages, and their failures.

use super::*;

/// A store whose copies fail.
struct Broken;

impl PageStore for Broken {
    fn clear(&mut self, _: usize, _: u32) -> Result<()> {
        Ok(())
    }

    fn copy(&mut self, _: usize, _: u32, _: u32) -> Result<()> {
        Err(Error::new(Status::System, "broken"))
    }

    fn write(&mut self, _: usize, _: u32, _: &[u8]) -> Result<()> {
        Err(Error::new(Status::System, "broken"))
    }

    fn save(&mut self, _: usize, _: u32, _: &mut [u8]) -> Result<()> {
        Err(Error::new(Status::System, "broken"))
    }

    fn load(&mut self, _: usize, _: u32, _: &[u8]) -> Result<()> {
        Err(Error::new(Status::System, "broken"))
    }
}

#[test]
fn a_failing_copy_changes_nothing() {
    let mut kv = Kv::new(Box::new(Broken), Layout::reserved(&[state(0, 0, 128)], 64).unwrap(), 100);
    let a = kv.seq_new().unwrap();
    append(&mut kv, a, 20).unwrap();
    let b = kv.fork(a).unwrap();
    for _ in 0..10 {
        assert_eq!(append(&mut kv, b, 1).unwrap_err().status, Status::System);
    }
    assert_eq!((kv.used_pages(), kv.tokens(b).unwrap().len()), (2, 20));
    kv.seq_free(a).unwrap();
    // Alone now, so nothing is copied.
    append(&mut kv, b, 1).unwrap();
}

/// Adapters are no pages of sequences: they take none, and their number is all that the table has.
#[test]
fn adapters_are_chosen_by_empty_sequences() {
    let adapter =
        |bytes| StateDesc { kind: llmcc_abi::state::ADAPTER, group: 1, window: 2, bytes, ..StateDesc::default() };
    let (mut kv, pools) = with_states(&[state(0, 0, 64), adapter(64), adapter(128)], 64, 100);
    assert_eq!(kv.adapters(), 2);
    let (a, b) = (kv.seq_new().unwrap(), kv.seq_new().unwrap());
    kv.set_adapter(a, 2).unwrap();
    for seq in [a, b] {
        append(&mut kv, seq, 20).unwrap();
    }
    assert_eq!(kv.used_pages(), 4);
    let number = |kv: &Kv, seq| kv.pages(kv.slot(seq).unwrap(), 1).to_vec();
    assert_eq!([number(&kv, a), number(&kv, b)], [[2], [0]]);
    assert!(kv.set_adapter(b, 1).unwrap_err().message.contains("has 20 tokens"));
    kv.set_adapter(b, 0).unwrap();
    let fork = kv.fork(a).unwrap();
    assert_eq!((number(&kv, fork), kv.users(2)), (vec![2], 2));
    // Neither cutting a sequence nor the room for tokens changes it.
    kv.truncate(a, 0).unwrap();
    assert_eq!(number(&kv, a), [2]);
    kv.set_adapter(a, 1).unwrap();
    assert_eq!([kv.users(1), kv.users(2)], [1, 1]);
    kv.seq_free(fork).unwrap();
    kv.seq_free(a).unwrap();
    let again = kv.seq_new().unwrap();
    assert_eq!((number(&kv, again), kv.users(1), kv.users(2)), (vec![0], 0, 0));
    kv.write_adapter(2, 2, &[7; 128]).unwrap();
    // SAFETY: inside the pool.
    assert_eq!(unsafe { [pools[2].add(255).read(), pools[2].add(256).read(), pools[2].add(383).read()] }, [0, 7, 7]);
    assert!(kv.write_adapter(2, 3, &[7; 128]).is_err() && kv.write_adapter(2, 1, &[7; 64]).is_err());
}
