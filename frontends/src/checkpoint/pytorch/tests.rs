use super::*;
use crate::checkpoint::{Checkpoint, safetensors};
use crate::testing::{Folder, golden, shared};
use crate::{Options, lift};
use std::path::Path;

fn file(name: &str) -> Vec<u8> {
    std::fs::read(golden("pytorch").join(name)).unwrap()
}

/// The bytes of a tensor, one element after the other.
fn gathered(file: &[u8], t: &Found) -> Vec<u8> {
    let size = (t.info.dtype.bits / 8) as usize;
    let bytes = &file[t.info.bytes.clone()];
    let Some(strides) = &t.strides else { return bytes.to_vec() };
    let count: usize = t.info.shape.iter().product();
    let place = |i: usize| {
        let (mut rest, mut at) = (i, 0);
        for (n, stride) in t.info.shape.iter().zip(strides).rev() {
            at += rest % n * stride;
            rest /= n;
        }
        at * size
    };
    (0..count).flat_map(|i| bytes[place(i)..place(i) + size].to_vec()).collect()
}

/// Both formats hold the same bits as PyTorch's safetensors.
#[test]
fn tensors_are_those_of_pytorch() {
    let values = file("values.safetensors");
    let wanted = safetensors::parse(&values).unwrap();
    for name in ["zip.pt", "legacy.pt", "wrapped.pt"] {
        let bytes = file(name);
        let contents = parse(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(contents.tensors.keys().eq(wanted.keys()), "{name}");
        for (tensor, found) in &contents.tensors {
            let wanted = &wanted[tensor];
            assert_eq!((&found.info.shape, found.info.dtype), (&wanted.shape, wanted.dtype), "{name} {tensor}");
            assert_eq!(gathered(&bytes, found), values[wanted.bytes.clone()], "{name} {tensor}");
        }
        let strided: Vec<&String> =
            contents.tensors.iter().filter(|(_, t)| t.strides.is_some()).map(|(n, _)| n).collect();
        assert_eq!(strided, ["column", "cube", "transposed", "view"]);
        let notes = if name == "wrapped.pt" {
            vec!["only `model` is read from the file; 2 other entries are ignored".to_string()]
        } else {
            vec![]
        };
        assert_eq!(contents.notes, notes);
    }
    let types: Vec<_> = parse(&file("fp8.pt")).unwrap().tensors.into_values().map(|t| t.info.dtype.name).collect();
    assert_eq!(types, ["F8_E4M3", "U16"]);
}

/// The same model in other files is the same model.
#[test]
fn layouts_are_read_alike() {
    let open = |name: &str| Checkpoint::open(&golden("pytorch").join(name)).unwrap_or_else(|e| panic!("{e}"));
    let wanted = open("model");
    for name in ["bin", "llama", "llama/consolidated.01.pth", "model0.bin", "model1.bin"] {
        let found = open(name);
        assert!(found.names().eq(wanted.names()), "{name}: {:?}", found.names().collect::<Vec<_>>());
        for tensor in wanted.names() {
            assert_eq!(found.info(tensor).unwrap().shape, wanted.info(tensor).unwrap().shape, "{name} {tensor}");
            assert_eq!(found.to_f32(tensor), wanted.to_f32(tensor), "{name} {tensor}");
            found.release(tensor);
        }
        let module = lift(&found, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(crate::unused::find(&found, &module).unwrap(), None, "{name}");
        assert_eq!((module.info.max_context, found.notes()), (64, &[][..]), "{name}");
        assert!(!found.source_files().unwrap().is_empty());
    }
    let mut files: Vec<_> = open("llama").source_files().unwrap().into_iter().map(|f| f.name).collect();
    files.sort();
    assert_eq!(files, ["consolidated.00.pth", "consolidated.01.pth", "params.json"]);
}

/// A view is a tensor as any other.
#[test]
fn views_have_their_values() {
    let folder = Folder::new();
    folder.write("pytorch_model.bin", file("zip.pt")).write("config.json", "{}");
    let ckpt = Checkpoint::open(&folder.0).unwrap();
    let wanted = file("values.safetensors");
    let places = safetensors::parse(&wanted).unwrap();
    for name in ["f32", "transposed", "view", "column", "cube", "scalar", "parameter"] {
        let bytes = wanted[places[name].bytes.clone()].chunks(4);
        let values: Vec<f32> = bytes.map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(ckpt.to_f32(name), Some(values), "{name}");
    }
}

/// A random model of Llama's own code, with masks that follow from its sizes.
#[test]
fn a_file_of_llamas_code() {
    let Some(shared) = shared("llama_pth_random") else { return };
    let folder = Folder::new();
    let copy = |from: &str, to: &str| std::fs::copy(shared.join(from), folder.0.join(to)).unwrap();
    copy("demo_rand_params.pth", "consolidated.00.pth");
    copy("demo_config.json", "params.json");
    let ckpt = Checkpoint::open(&folder.0).unwrap_or_else(|e| panic!("{e}"));
    let module = lift(&ckpt, &Options::default()).unwrap();
    assert_eq!(crate::unused::find(&ckpt, &module).unwrap(), None);
    assert_eq!((module.info.vocab, module.info.hidden, module.info.max_context), (512, 64, 4096));
    assert!(ckpt.notes()[0].contains("4096 is assumed"), "{:?}", ckpt.notes());
}

/// llama2.c's file is the model that was converted by hand from it.
#[test]
fn a_file_of_llama2c() {
    let Some(folder) = shared("stories260K") else { return };
    let open = |name: &str| Checkpoint::open(&folder.join(name)).unwrap_or_else(|e| panic!("{e}"));
    let (found, wanted) = (open("stories260K.bin"), open("hf"));
    for tensor in wanted.names() {
        assert_eq!(found.to_f32(tensor), wanted.to_f32(tensor), "{tensor}");
    }
}

/// bitllama2.c's file has the codes and scales that were taken out of it by hand, and the folder is the model.
#[test]
fn a_ternary_file_of_llama2c() {
    let Some(folder) = shared("bitnet_stories_1M") else { return };
    let found = Checkpoint::open(&folder).unwrap_or_else(|e| panic!("{e}"));
    let file = std::fs::read(folder.join("model_ternary_int8.safetensors")).unwrap();
    let wanted = safetensors::parse(&file).unwrap();
    let mut count = 0;
    for (name, w) in wanted.iter().filter(|(name, _)| name.ends_with("_proj.weight")) {
        let data = |name: &str| &file[wanted[name].bytes.clone()];
        let scale = f32::from_le_bytes(data(&format!("{name}_scale")).try_into().unwrap());
        let (n, k) = (w.shape[0], w.shape[1]);
        let ours = found.to_f32(name).unwrap();
        let rotated = name.contains("q_proj") || name.contains("k_proj");
        // Heads of 16 rows, whose neighbours are halves here.
        let place = |row: usize| if rotated { row / 16 * 16 + row % 8 * 2 + row % 16 / 8 } else { row };
        for row in 0..n {
            let theirs = data(name)[place(row) * k..][..k].iter().map(|c| f32::from(*c as i8) * (scale / k as f32));
            assert!(theirs.eq(ours[row * k..][..k].iter().copied()), "{name}, row {row}");
        }
        count += 1;
    }
    assert_eq!(count, 7 * 8);
}

fn message(bytes: &[u8]) -> String {
    parse(bytes).map_or_else(|e| e.to_string(), |c| format!("ok: {} tensors", c.tensors.len()))
}

/// A file of the old format whose tensors this pickle makes.
fn old(pickle: &[u8]) -> Vec<u8> {
    let magic = [b"\x80\x02\x8a\x0a".as_slice(), MAGIC, b"."].concat();
    let about = b"\x80\x02}X\x0d\0\0\0little_endian\x88s.";
    [&magic, b"\x80\x02M\xe9\x03.".as_slice(), about, pickle, b"\x80\x02]."].concat()
}

#[test]
fn hostile_pickles_say_what_is_wrong() {
    let evil = message(&file("evil.pt"));
    assert!(
        evil.contains(
            "the pickle asks for `posix.system`, which no tensor needs; nothing was run; if you trust it, convert it"
        ),
        "{evil}"
    );
    for (pickle, says) in [
        (&b"cos\nsystem\nX\x02\0\0\0lsR."[..], "asks for `os.system`"),
        (b"X\x02\0\0\0osX\x06\0\0\0system\x93.", "asks for `os.system`"),
        (b"ios\nsystem\n.", "the instruction 0x69, which is not supported"),
        (b"P1\n.", "the instruction 0x50"),
        (b"\x82\x01.", "the instruction 0x82"),
        (b".", "takes from an empty stack"),
        (b"(.", "takes from an empty stack"),
        (b"0", "takes from an empty stack"),
        (b"t", "no mark"),
        (b"\x87", "empty stack"),
        (b"K\x01K\x02a", "holds nothing"),
        (b"}K\x02a", "no list"),
        (b"]K\x02K\x02s", "no dictionary"),
        (b"h\x07", "takes number 7, which it never kept"),
        (b"X\xff\xff\xff\xff", "claims 4294967295 bytes"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "claims 18446744073709551615 bytes"),
        (b"I12345678901234567890123\n.", "a line that should be an integer of 64 bits"),
        (b"K\x01.", "no dictionary of tensors"),
        (b"}.", "holds no tensors"),
        (b"}X\x01\0\0\0w]s.", "`w` is a collection"),
        (b"}K\x01K\x01s.", "a name that is not a text"),
        (b"K\x01)R", "calls something that is not a function"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R.", "does not make a tensor from a storage"),
        (b"K\x01Q", "refers to something that is not a storage"),
        (b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0kNJ\xff\xff\xff\xfftQ", "not a storage"),
    ] {
        let found = message(&old(pickle));
        assert!(found.contains(says) && found.starts_with("byte "), "{says}: {found}");
    }
    // A dictionary that holds itself, and a deep one.
    assert!(message(&old(b"}q\0X\x05\0\0\0modelh\0s.")).contains("`model` is a collection"));
    let deep = [vec![b']'; 100_000], vec![b'a'; 99_999], vec![b'.']].concat();
    assert!(message(&old(&deep)).contains("no dictionary"));
    assert!(message(b"\x80\x02K\x01.").contains("not written by `torch.save`"));
}

/// Tensors that do not lie in their storage, or that a file cannot hold.
#[test]
fn tensors_lie_in_their_storage() {
    let tensor = |numel: u8, offset: u8, sizes: &[u8], strides: &[u8]| {
        let tuple = |list: &[u8]| {
            let items: Vec<u8> = list.iter().flat_map(|n| [b'K', *n]).collect();
            [b"(".as_slice(), &items, b"t"].concat()
        };
        let storage = [b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0kNK".as_slice(), &[numel], b"tQ"].concat();
        let args = [&storage, b"K".as_slice(), &[offset], &tuple(sizes), &tuple(strides)].concat();
        let pickle = [b"}X\x01\0\0\0w".as_slice(), b"ctorch._utils\n_rebuild_tensor_v2\n(", &args, b"tRs."].concat();
        let mut file = old(&pickle);
        file.truncate(file.len() - 4);
        [&file, b"\x80\x02]X\x01\0\0\0ka.".as_slice(), &4u64.to_le_bytes(), &[0; 16]].concat()
    };
    assert_eq!(message(&tensor(4, 0, &[2, 2], &[2, 1])), "ok: 1 tensors");
    assert_eq!(message(&tensor(4, 0, &[2, 2], &[1, 2])), "ok: 1 tensors");
    for (file, says) in [
        (tensor(5, 0, &[2], &[1]), "storage `k` claims 20 bytes, but has 16"),
        (tensor(4, 1, &[2, 2], &[2, 1]), "from element 1 on exceeds its storage of 16 bytes"),
        (tensor(4, 0, &[2, 2], &[3, 1]), "exceeds its storage"),
        (tensor(4, 0, &[8], &[0]), "repeats elements of its storage; if you trust it, convert it to safetensors"),
        (tensor(4, 0, &[2], &[1, 1]), "has 1 sizes and 2 strides"),
        (tensor(4, 0, &[1; 17], &[1; 17]), "17 sizes"),
    ] {
        let found = message(&file);
        assert!(found.contains(says), "{says}: {found}");
    }
    // A tensor that negates its stored values (`torch._neg_view`).
    let negative = |set: u8| {
        let after = [b"\x89ccollections\nOrderedDict\n)R}X\x03\0\0\0neg".as_slice(), &[set], b"stRs."].concat();
        let plain = tensor(4, 0, &[2, 2], &[2, 1]);
        let at = plain.windows(4).position(|w| w == b"tRs.").unwrap();
        [&plain[..at], &after, &plain[at + 4..]].concat()
    };
    assert_eq!(message(&negative(0x89)), "ok: 1 tensors");
    assert!(message(&negative(0x88)).contains("a tensor has the note `neg`, which may change its contents"));
    let mut cut = tensor(4, 0, &[2], &[1]);
    cut.pop();
    assert!(message(&cut).contains("ends within a storage"));
    let swapped: Vec<u8> = old(b"}.").iter().map(|b| if *b == 0x88 { 0x89 } else { *b }).collect();
    assert!(message(&swapped).contains("big-endian"));
}

/// Cut anywhere, or with any byte changed, a file is read or refused; tensors lie in it.
#[test]
fn damaged_files_do_no_harm() {
    for name in ["zip.pt", "legacy.pt"] {
        let whole = file(name);
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{name} {len}");
        }
        let mut bytes = whole.clone();
        for at in 0..whole.len() {
            for byte in [0, 0xff, b'.'] {
                bytes[at] = byte;
                let contents = parse(&bytes).unwrap_or_default();
                assert!(contents.tensors.values().all(|t| bytes.get(t.info.bytes.clone()).is_some()));
            }
            bytes[at] = whole[at];
        }
    }
}

#[test]
fn archives_that_are_none_of_pytorch() {
    let zip = file("zip.pt");
    let changed = |from: &[u8], to: &[u8]| {
        let mut out = zip.clone();
        let places: Vec<usize> = (0..zip.len() - from.len()).filter(|i| zip[*i..].starts_with(from)).collect();
        places.into_iter().for_each(|at| out[at..at + to.len()].copy_from_slice(to));
        message(&out)
    };
    assert!(changed(b"data.pkl", b"date.pkl").contains("no `data.pkl`"));
    assert!(changed(b"little", b"big   ").contains("big-endian"));
    assert!(changed(b"/data/0", b"/date/0").contains("storage `0` is not in the file"));
    assert!(message(b"PK\x03\x04").contains("the archive has no end"));
    // The method of the first entry of the directory.
    let at = (0..zip.len()).find(|i| zip[*i..].starts_with(b"PK\x01\x02")).unwrap();
    let mut packed = zip.clone();
    packed[at + 10] = 8;
    assert!(message(&packed).contains("is compressed; if you trust it, convert it"));
    let mut secret = zip;
    secret[at + 8] |= 1;
    assert!(message(&secret).contains("is encrypted"));
}

/// Slices that do not belong together.
#[test]
fn slices_are_checked() {
    let folder = Folder::new();
    let copy = |from: &str, to: &str| {
        std::fs::copy(golden("pytorch/llama").join(from), folder.0.join(to)).unwrap();
    };
    copy("consolidated.00.pth", "consolidated.00.pth");
    let open =
        |path: &Path| Checkpoint::open(path).map_err(|e| e.to_string().replace(&*folder.0.to_string_lossy(), "DIR"));
    let message = open(&folder.0).unwrap_err();
    assert_eq!(
        message,
        "DIR/config.json: the file is missing; Llama's own files need params.json beside them; download it, too"
    );
    copy("params.json", "params.json");
    copy("consolidated.01.pth", "consolidated.02.pth");
    assert!(open(&folder.0).unwrap_err().contains("`consolidated.01.pth` is missing among 3 files"));
    std::fs::remove_file(folder.0.join("consolidated.02.pth")).unwrap();
    // Half of the model is none.
    let half = open(&folder.0).unwrap();
    assert!(lift(&half, &Options::default()).is_err());
}

/// Bytes of memory that the machine takes for a byte of a pickle, at most.
const MOST_FOR_A_BYTE: usize = 256;

/// The machine's memory for a pickle is bounded by the pickle's size, whatever its program is.
#[test]
fn memory_is_bounded_by_the_size_of_a_pickle() {
    const N: usize = 50_000;
    let times = |part: &[u8]| part.repeat(N);
    let dict = b"ccollections\nOrderedDict\nq\x00";
    let text = [b"X\x00\x40\0\0".as_slice(), &[b'a'; 0x4000], b"q\x01"].concat();
    let programs: Vec<(&str, Vec<u8>)> = vec![
        // A list of N pairs, from which dictionaries are made again and again.
        ("list", [dict.as_slice(), b"](", &times(b"K\x01K\x02\x86"), b"eq\x01", &times(b"h\x00h\x01\x85R")].concat()),
        ("lists", times(b"]")),
        ("kept lists", times(b"]\x94")),
        ("dicts", times(b"}N\x88s")),
        ("tuples", [b"N".as_slice(), &times(b"\x85")].concat()),
        ("pairs", [b"N".as_slice(), &times(b"2\x86")].concat()),
        ("marks", times(b"(")),
        ("memo", [b"N".as_slice(), &times(b"\x94")].concat()),
        ("copies", [b"N".as_slice(), &times(b"2")].concat()),
        ("sets", times(b"\x8f(N\x90")),
        ("frozen sets", times(b"(N\x91")),
        ("texts", [&text, &times(b"h\x01")[..]].concat()),
        ("dictionary of one text", [&text, b"}".as_slice(), &times(b"h\x01h\x01s")].concat()),
        ("attributes", [b"}".as_slice(), &times(b"}b")].concat()),
        ("long", times(b"\x8b\x04\0\0\0abcd")),
        ("longer", b"\x8b\xff\xff\xff\x7fabcd".to_vec()),
        ("bytes", times(b"B\x04\0\0\0abcd")),
        ("strings", times(b"S'a'\n")),
    ];
    for (what, program) in programs {
        let mut machine = Unpickler::new(&program, 0, program.len());
        // None succeeds: each gives an error, and the objects so far are counted.
        assert!(machine.load().is_err(), "{what}");
        let (bytes, size) = (machine.bytes(), program.len());
        assert!(bytes <= MOST_FOR_A_BYTE * size + 4096, "{what}: {bytes} bytes of {size}");
    }
}
