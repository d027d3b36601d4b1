use super::*;
use crate::fixtures::write_checkpoint;
use crate::testing::{Folder, config, shared, with};

#[test]
fn x() {
    let _ = shared("stories260K");
    let f = Folder::new();
    write_checkpoint(&f.0, &with(config("llama"), json!({})), &[]).unwrap();
}
