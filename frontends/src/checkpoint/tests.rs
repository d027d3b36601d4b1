use super::*;
use crate::fixtures::{self, Tensor, with_header, write_checkpoint};
use crate::testing::{Folder, config, golden, shared};
use llmcc_ir::ty::DType;
use safetensors::parse;
use serde_json::json;

fn message(file: &[u8]) -> String {
    parse(file).map_or_else(|e| e.to_string(), |t| format!("ok: {} tensors", t.len()))
}

#[test]
fn malformed_headers() {
    let t = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
    };
    let one =
        |dtype: &str, shape: &str, offsets: &str| with_header(&format!(r#"{{"w":{}}}"#, t(dtype, shape, offsets)), 8);
    let two = |a: &str, b: &str| with_header(&format!(r#"{{"a":{},"b":{}}}"#, t("U8", "[4]", a), t("U8", "[4]", b)), 8);
    let truncated = "the file is truncated: download it again";
    let corrupt = "the file is corrupt";
    let foreign = "this is not a safetensors file, or it is corrupt";
    let deep = format!("{}1{}", r#"{"a":"#.repeat(300), "}".repeat(300));
    let cases: Vec<(Vec<u8>, String)> = vec![
        (
            vec![],
            "the file has 0 bytes, too few for a safetensors header; it is empty or truncated: download it again"
                .into(),
        ),
        (
            vec![1; 7],
            "the file has 7 bytes, too few for a safetensors header; it is empty or truncated: download it again"
                .into(),
        ),
        (vec![0xff; 64], format!("its first 8 bytes give a header longer than the allowed 100000000 bytes; {foreign}")),
        (
            [100u64.to_le_bytes().as_slice(), b"{}"].concat(),
            format!("the header claims 100 bytes, but only 2 follow; {truncated}"),
        ),
        (
            [2u64.to_le_bytes().as_slice(), b"{\xff"].concat(),
            format!("byte 9 of the file, in the header, is not UTF-8; {foreign}"),
        ),
        (
            with_header("{", 0),
            format!("the header is not valid: EOF while parsing an object at line 1 column 1; {foreign}"),
        ),
        (
            with_header("[]", 0),
            format!(
                "the header is not valid: invalid type: sequence, expected an object of tensors at line 1 column 0; {foreign}"
            ),
        ),
        (
            with_header(r#"{"w":{"dtype":"F32"}}"#, 0),
            format!("the header is not valid: tensor `w`: missing field `shape` at line 1 column 20; {foreign}"),
        ),
        (
            one("F32", "[-2]", "[0,8]"),
            format!(
                "the header is not valid: tensor `w`: invalid value: integer, expected u64 at line 1 column 31; {foreign}"
            ),
        ),
        (
            with_header(&deep, 0),
            format!("the header is not valid: tensor `a`: missing field `dtype` at line 1 column 1800; {foreign}"),
        ),
        (one("F31", "[2]", "[0,8]"), "tensor `w` has unknown element type `F31`; write it as F32, F16 or BF16".into()),
        (
            one("F32", "[2]", "[0,7]"),
            format!("tensor `w`: F32 [2] takes 8 bytes, but its range 0..7 has another length; {corrupt}"),
        ),
        (
            one("F32", "[2]", "[8,0]"),
            format!("tensor `w`: F32 [2] takes 8 bytes, but its range 8..0 has another length; {corrupt}"),
        ),
        (
            one("F32", "[3]", "[0,12]"),
            format!("tensor `w` ends at byte 75 of the file, which has only 71; {truncated}"),
        ),
        (
            one("F32", "[1]", "[18446744073709551611,18446744073709551615]"),
            format!("tensor `w` ends at byte 18446744073709551615 of the file, which has only 108; {truncated}"),
        ),
        (
            one("F32", "[4294967296,4294967296]", "[0,8]"),
            format!("tensor `w`: F32 [4294967296, 4294967296] is too large or not a whole number of bytes; {corrupt}"),
        ),
        (
            one("F64", "[2305843009213693952]", "[0,8]"),
            format!("tensor `w`: F64 [2305843009213693952] is too large or not a whole number of bytes; {corrupt}"),
        ),
        (
            one("F32", "[0,18446744073709551615]", "[0,0]"),
            format!("tensor `w`: F32 [0, 18446744073709551615] is too large or not a whole number of bytes; {corrupt}"),
        ),
        (
            one("F4", "[3]", "[0,1]"),
            format!("tensor `w`: F4 [3] is too large or not a whole number of bytes; {corrupt}"),
        ),
        (
            one("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,8]", "[0,8]"),
            "tensor `w` has 17 dimensions (at most 16 are supported); the file is corrupt".into(),
        ),
        (one("U8", "[4]", "[0,4]"), format!("bytes 65..69 of the file belong to no tensor; {corrupt}")),
        (one("U8", "[4]", "[4,8]"), format!("bytes 61..65 of the file belong to no tensor; {corrupt}")),
        (two("[0,4]", "[0,4]"), format!("tensors `a` and `b` overlap at byte 113 of the file; {corrupt}")),
        (two("[2,6]", "[0,4]"), format!("tensors `b` and `a` overlap at byte 115 of the file; {corrupt}")),
        (
            with_header(&format!(r#"{{"w":{0},"w":{0}}}"#, t("U8", "[8]", "[0,8]")), 8),
            "tensor `w` appears twice in the header; write the file again".into(),
        ),
        (two("[0,4]", "[4,8]"), "ok: 2 tensors".into()),
        (with_header(r#"{"__metadata__":{"format":"pt"}}"#, 0), "ok: 0 tensors".into()),
        (with_header("   {}   ", 0), "ok: 0 tensors".into()),
    ];
    for (i, (file, expected)) in cases.iter().enumerate() {
        assert_eq!(&message(file), expected, "case {i}");
    }
}

#[test]
fn every_truncation_of_a_file_is_refused() {
    let data = vec![1, 2, 3, 4, 5, 6, 7, 8];
    let file = fixtures::safetensors(&[Tensor { name: "w".into(), dtype: "F32", shape: vec![2], data }]);
    assert_eq!(message(&file), "ok: 1 tensors");
    for len in 0..file.len() {
        assert!(parse(&file[..len]).is_err(), "{len} of {} bytes", file.len());
    }
}

#[test]
fn reference_edge_cases() {
    let Some(dir) = shared("safetensors_edge") else { return };
    let expected: Value = serde_json::from_slice(&std::fs::read(dir.join("expected.json")).unwrap()).unwrap();
    for (name, entry) in expected.as_object().unwrap() {
        let file = std::fs::read(dir.join(format!("{name}.safetensors"))).unwrap();
        let found = match parse(&file) {
            Ok(_) => "OK",
            Err(safetensors::HeaderError::TooShort { .. }) => "HeaderTooSmall",
            Err(safetensors::HeaderError::TooLarge { .. }) => "HeaderTooLarge",
            Err(safetensors::HeaderError::Truncated { .. }) => "InvalidHeaderLength",
            Err(safetensors::HeaderError::NotUtf8 { .. }) => "InvalidHeader",
            Err(safetensors::HeaderError::NotJson { .. }) => "InvalidHeaderDeserialization",
            Err(safetensors::HeaderError::Size { .. }) => "TensorInvalidInfo",
            Err(safetensors::HeaderError::Overflow { .. }) => "ValidationOverflow",
            Err(safetensors::HeaderError::Overlap { .. }) => "InvalidOffset",
            Err(safetensors::HeaderError::Hole { .. } | safetensors::HeaderError::OutOfRange { .. }) => {
                "MetadataIncompleteBuffer"
            }
            Err(e) => panic!("{name}: {e}"),
        };
        assert_eq!(found, entry["expected"].as_str().unwrap(), "{name}");
    }
}

/// A header may be a link to another file: its values are nobody's to read.
#[test]
fn messages_of_headers_quote_no_values() {
    for info in [
        r#"{"dtype":"F32","shape":"secret","data_offsets":[0,4]}"#,
        r#"{"dtype":7,"shape":[1],"data_offsets":[0,4]}"#,
        r#""secret, expected no more""#,
        r#"{"dtype":"F32","shape":[-31337],"data_offsets":[0,4]}"#,
    ] {
        let json = format!("{{\"w\":{info}}}");
        let file = [&(json.len() as u64).to_le_bytes(), json.as_bytes()].concat();
        let error = parse(&file).unwrap_err().to_string();
        assert!(error.contains("tensor `w`: invalid ") && error.contains(", expected "), "{error}");
        assert!(!error.contains("secret") && !error.contains("31337") && !error.contains("`7`"), "{error}");
    }
}

#[test]
fn a_checkpoint_is_read_whole() {
    let folder = Folder::new();
    let t = |name: &str, dtype, data: Vec<u8>| Tensor { name: name.into(), dtype, shape: vec![2], data };
    // An odd number of bytes in front leaves the others misaligned.
    let odd = Tensor { name: "a".into(), dtype: "U8", shape: vec![3], data: vec![7; 3] };
    let values = [1.5f32, -2.25];
    let tensors = [
        odd,
        t("b", "F32", values.iter().flat_map(|x| x.to_le_bytes()).collect()),
        t("c", "F16", values.iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect()),
        t("d", "BF16", values.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect()),
        t("e", "F8_E4M3", vec![0; 2]),
    ];
    write_checkpoint(&folder.0, &config("llama"), &tensors).unwrap();
    let ckpt = Checkpoint::open(&folder.0).unwrap();
    assert_eq!(ckpt.names().collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
    for name in ["b", "c", "d"] {
        assert_eq!(ckpt.tensor(name).unwrap().to_f32(), values, "{name}");
        ckpt.release(name);
        assert_eq!(ckpt.tensor(name).unwrap().to_f32(), values, "{name} after release");
    }
    let view = ckpt.tensor("a").unwrap();
    assert_eq!((view.dtype, view.shape, view.data), (DType::U8, vec![3], &[7u8; 3][..]));
    assert!(ckpt.tensor("e").is_none() && ckpt.info("e").is_some() && ckpt.tensor("f").is_none());
    ckpt.release("f");

    let files = ckpt.source_files().unwrap();
    assert_eq!(files.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["config.json", "model.safetensors"]);
    assert_eq!(files[1].bytes, std::fs::metadata(&files[1].path).unwrap().len());
    // The file itself may be named, too.
    let file = Checkpoint::open(&folder.0.join("model.safetensors")).unwrap();
    assert_eq!(file.names().count(), 5);
}

#[test]
fn hash_of_a_source() {
    let folder = Folder::new();
    folder.write("x", "abc");
    let file = SourceFile { name: "x".into(), path: folder.0.join("x"), bytes: 3 };
    let hex: String = file.sha256().unwrap().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"); // FIPS 180-2, appendix B.1
}

#[test]
fn shards_equal_the_single_file() {
    let (one, two) =
        (Checkpoint::open(&golden("llama3")).unwrap(), Checkpoint::open(&golden("llama3_sharded")).unwrap());
    assert!(one.names().eq(two.names()));
    assert!(one.names().all(|n| one.tensor(n).unwrap().data == two.tensor(n).unwrap().data));
    let files: Vec<_> = two.source_files().unwrap().into_iter().map(|f| f.name).collect();
    let shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    assert_eq!(files, [&["config.json", "model.safetensors.index.json"], &shards[..]].concat());
}

/// The message for a folder with these files, without the folder's path.
fn folder_message(files: &[(&str, &[u8])], open: &str) -> String {
    let folder = Folder::new();
    for (name, bytes) in files {
        folder.write(name, bytes);
    }
    let path = if open.is_empty() { folder.0.clone() } else { folder.0.join(open) };
    let text = Checkpoint::open(&path).map_or_else(|e| e.to_string(), |c| format!("ok: {} tensors", c.names().count()));
    text.replace(&*folder.0.to_string_lossy(), "DIR")
}

/// A GGUF file that says of itself no more than which part it is.
fn part(at: u16, of: u16) -> Vec<u8> {
    part_saying(at, of, &[])
}

/// The same with other keys.
fn part_saying(at: u16, of: u16, others: &[(&str, u16)]) -> Vec<u8> {
    let key = |(name, value): &(&str, u16)| {
        let mut out = (name.len() as u64).to_le_bytes().to_vec();
        out.extend(name.bytes().chain(2u32.to_le_bytes()).chain(value.to_le_bytes()));
        out
    };
    let keys = [&[("split.no", at), ("split.count", of)], others].concat();
    let head = [&b"GGUF"[..], &3u32.to_le_bytes(), &0u64.to_le_bytes(), &(keys.len() as u64).to_le_bytes()].concat();
    [head, keys.iter().flat_map(key).collect()].concat()
}

#[test]
fn folders_that_are_no_checkpoints() {
    let tensor =
        |name: &str| fixtures::safetensors(&[Tensor { name: name.into(), dtype: "U8", shape: vec![1], data: vec![1] }]);
    let (a, b) = (tensor("a"), tensor("b"));
    let index = |json: Value| json!({ "metadata": {}, "weight_map": json }).to_string();
    let both = index(json!({ "a": "1.safetensors", "b": "2.safetensors" }));
    let again = "download the checkpoint again, all files of one revision";
    let parts = "download the model again, all parts of one revision";
    let [first, other, many] = [part(0, 2), part(1, 3), part(0, 65535)];
    let [ten, nine] = [10, 9].map(|n| [0, 1].map(|at| part_saying(at, 2, &[("split.tensors.count", n)])));
    let [llama, qwen] = [1, 2].map(|n| [0, 1].map(|at| part_saying(at, 2, &[("llama.block_count", n)])));
    const INDEX: &str = "model.safetensors.index.json";
    #[allow(clippy::type_complexity)] // a table: files, fault, message
    let cases: Vec<(Vec<(&str, &[u8])>, &str, String)> = vec![
        (vec![], "none", "DIR/none: cannot open: No such file or directory (os error 2)".into()),
        (vec![], "", "DIR: holds neither model.safetensors nor model.safetensors.index.json; give the folder of a Hugging Face checkpoint".into()),
        (vec![("config.json", b"{}")],
            "",
            "DIR: holds neither model.safetensors nor model.safetensors.index.json; download the tensors, too, or \
                compile the model without them (--weights absent)".into(),
        ),
        (vec![("m.gguf", b"GGUF")], "", "DIR/m.gguf: byte 4 of the file: the file ends after 4 bytes, within the version; the file is truncated or corrupt: download it again".into()),
        (vec![("a-00002-of-00002.gguf", b"GGUF")],
            "",
            "DIR: holds `a-00002-of-00002.gguf`, but not the first \
             part of that model; download all parts of the model".into(),
        ),
        (vec![("a-00001-of-00002.gguf", &first)],
            "",
            "DIR/a-00002-of-00002.gguf: it is missing: part 2 of 2 of a model; download it, from the same \
                revision as the others".into(),
        ),
        (vec![("a-00001-of-00002.gguf", &first), ("a-00002-of-00002.gguf", &first)],
            "",
            format!("DIR/a-00002-of-00002.gguf: it is named part 2 of 2, but its `split.no` is 0, not 1; {parts}"),
        ),
        (vec![("a-00001-of-00002.gguf", &first), ("a-00002-of-00002.gguf", &other)],
            "",
            format!("DIR/a-00002-of-00002.gguf: it is named part 2 of 2, but its `split.count` is 3, not 2; {parts}"),
        ),
        (vec![("a-00001-of-00002.gguf", &ten[0]), ("a-00002-of-00002.gguf", &ten[1])],
            "",
            format!("DIR/a-00001-of-00002.gguf: `split.tensors.count` is 10, but its 2 parts have 0 tensors; {parts}"),
        ),
        (vec![("a-00001-of-00002.gguf", &ten[0]), ("a-00002-of-00002.gguf", &nine[1])],
            "",
            format!("DIR/a-00002-of-00002.gguf: its `split.tensors.count` is 9, but the first part's is 10; {parts}"),
        ),
        (vec![("a-00001-of-00002.gguf", &llama[0]), ("a-00002-of-00002.gguf", &qwen[1])],
            "",
            format!("DIR/a-00002-of-00002.gguf: its `llama.block_count` is 2, but the first part's is 1; {parts}"),
        ),
        (vec![("a-00001-of-65535.gguf", &many)],
            "",
            format!("DIR/a-00001-of-65535.gguf: `split.count` is 65535, but a model has at most 999 parts; {parts}"),
        ),
        (vec![("a.gguf", &first)],
            "",
            "DIR/a.gguf: it is one of 2 parts of a model, but its name does not end in `-00001-of-00002.gguf`; \
                give the first part under its original name".into(),
        ),
        (vec![("m.gguf", b"GGUF"), ("n.gguf", b"GGUF")],
            "",
            "DIR: holds 2 GGUF files: `m.gguf`, `n.gguf`; give the right one".into(),
        ),
        (
            vec![("m.gguf", b"GGUF"), ("mmproj-m-F16.gguf", b"GGUF"), ("imatrix.gguf", b"GGUF")],
            "",
            "DIR/m.gguf: byte 4 of the file: the file ends after 4 bytes, within the version; the file is truncated or \
             corrupt: download it again"
                .into(),
        ),
        (vec![("m.gguf", b"GGUF\x04\0\0\0")], "m.gguf", "DIR/m.gguf: byte 4 of the file: version 4 of GGUF is \
            unknown; 2 and 3 are supported; convert the model again with a current llama.cpp \
            (`convert_hf_to_gguf.py`)".into()),
        (vec![("x.safetensors", &a)], "", "DIR: holds `x.safetensors`, but neither model.safetensors nor \
            model.safetensors.index.json; give the file itself, or add the index".into()),
        (vec![("model.safetensors", b"version https://git-lfs.github.com/spec/v1\n")], "", "DIR/model.safetensors: this is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`, or download it again".into()),
        (vec![("model.safetensors", b"")], "", "DIR/model.safetensors: the file is empty; download it again".into()),
        (vec![("model.safetensors", &a)], "", "DIR/config.json: the file is missing; a checkpoint needs \
            config.json beside the tensors; download it, too".into()),
        (vec![("model.safetensors", &a), ("config.json", b"{,}")], "", "DIR/config.json: not valid JSON: key must be a string at line 1 column 2; correct it there, or download the file again".into()),
        (vec![("model.safetensors", &a), ("config.json", b"{}")], "", "ok: 1 tensors".into()),
        (vec![("model.safetensors", &a), ("config.json", b"{\"a\": 1, \"a\": 2}")], "", "DIR/config.json: not valid JSON: key `a` occurs twice at line 1 column 12; remove one of the two".into()),
        (vec![("model.safetensors", &a), ("config.json", b"\xef\xbb\xbf{}")], "", "DIR/config.json: not valid JSON: the file starts with a byte order mark at line 1 column 1; save it as UTF-8 without a byte order mark".into()),
        (vec![("model.safetensors", &a), ("config.json", b"{}")], "config.json", "DIR/config.json: it is \
            neither a folder nor a file of tensors; give the folder, `DIR`".into()),
        (vec![(INDEX, b"[]")], "", format!("DIR/{INDEX}: `weight_map` is missing; {again}")),
        (vec![(INDEX, b"{\"weight_map\":{}}")], "", format!("DIR/{INDEX}: `weight_map` is empty; {again}")),
        (vec![(INDEX, both.as_bytes()), ("1.safetensors", &a)], "", format!("DIR/{INDEX}: shard `2.safetensors` is missing; {again}")),
        (vec![(INDEX, both.as_bytes()), ("1.safetensors", &a), ("2.safetensors", &a)], "", format!("DIR/{INDEX}: tensor `b` is not in `2.safetensors`, where the index puts it; {again}")),
        (vec![(INDEX, both.as_bytes()), ("1.safetensors", &a), ("2.safetensors", &b), ("config.json", b"{}")], "", "ok: 2 tensors".into()),
    ];
    for (files, open, expected) in &cases {
        assert_eq!(&folder_message(files, open), expected, "{:?}", files.iter().map(|(n, _)| n).collect::<Vec<_>>());
    }
    for outside in ["../1.safetensors", "/etc/1.safetensors", "sub/1.safetensors", "..", "", "1.bin"] {
        let json = index(json!({ "a": outside }));
        let expected = format!(
            "DIR/{INDEX}: the index puts tensor `a` into `{outside}`, which is not a .safetensors file of this \
                folder; {again}"
        );
        assert_eq!(folder_message(&[(INDEX, json.as_bytes())], ""), expected);
    }
    let twice = fixtures::safetensors(&["a", "b"].map(|n| Tensor {
        name: n.into(),
        dtype: "U8",
        shape: vec![1],
        data: vec![1],
    }));
    // The index says which counts, if it names the tensor.
    let config = ("config.json", &b"{}"[..]);
    let files = |json: &str| {
        folder_message(&[(INDEX, json.as_bytes()), ("1.safetensors", &twice), ("2.safetensors", &b), config], "")
    };
    assert_eq!(files(&both), "ok: 2 tensors");
    let silent = index(json!({ "a": "1.safetensors", "c": "2.safetensors" }));
    let of_c = fixtures::safetensors(&["b", "c"].map(|n| Tensor {
        name: n.into(),
        dtype: "U8",
        shape: vec![1],
        data: vec![1],
    }));
    let message =
        folder_message(&[(INDEX, silent.as_bytes()), ("1.safetensors", &twice), ("2.safetensors", &of_c)], "");
    assert_eq!(
        message,
        format!(
            "DIR/{INDEX}: tensor `b` is both in `1.safetensors` and in `2.safetensors`, and the index does not \
                tell which of them counts; {again}"
        )
    );
}

#[test]
fn folders_of_pytorch_files() {
    let cut = "the file is truncated or corrupt: download it again";
    let none =
        "byte 0 of the file: this pickle was not written by `torch.save`; if you trust it, convert it to safetensors";
    let archive = format!("byte 4 of the file: the archive has no end; {cut}");
    let ends = format!("byte 2 of the file: the pickle ends at byte 2, within an instruction; {cut}");
    let two = "DIR: holds 2 files that may be the model: `a.pt`, `b.bin`; give the right one";
    #[allow(clippy::type_complexity)] // a table: files, path to open, message
    let cases: [(&[(&str, &[u8])], &str, String); 5] = [
        (&[("pytorch_model.bin", b"PK\x03\x04")], "", format!("DIR/pytorch_model.bin: {archive}")),
        (&[("model.safetensors", b"PK\x03\x04")], "model.safetensors", format!("DIR/model.safetensors: {archive}")),
        (&[("weights.pt", b"\x80\x02K\x01.")], "", format!("DIR/weights.pt: {none}")),
        (&[("weights.pt", b"\x80\x02"), ("training_args.bin", b"")], "", format!("DIR/weights.pt: {ends}")),
        (&[("a.pt", b"PK"), ("b.bin", b"PK")], "", two.into()),
    ];
    for (files, open, expected) in cases {
        let found = folder_message(files, open);
        assert!(found.starts_with(&expected), "{found}");
    }
}
