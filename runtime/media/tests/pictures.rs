//! Images as Transformers reads them: `tests/goldens/pictures.py`.

use llmcc_media::image::{Error, Grid, MOST_SIDE, Picture, Place, Spec, decode, sides};
use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::path::PathBuf;

fn place() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/goldens/pictures")
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(place().join(name)).expect("a file of pictures/")
}

/// The description of images that a processor makes `side` pixels large, in patches of 4 pixels.
fn texts(settings: &Value) -> Value {
    let crop = settings.get("crop_size").filter(|crop| crop.is_object()).cloned();
    let side = crop.as_ref().unwrap_or(&settings["size"])["height"].as_u64().expect("a height");
    let grid = side / 4;
    json!({ "media": { "image": {
        "processor": {
            "size": settings["size"], "crop": crop, "resample": settings["resample"],
            "rescale": settings["rescale_factor"], "mean": settings["image_mean"], "std": settings["image_std"],
            "rgb": true,
        },
        "patches": { "side": 4, "grid": grid, "channels": 3, "square": 1, "class": false },
        "rows": { "first": 0, "every": 1 },
        "text": {
            "marker": "<i>", "before": "[", "placeholder": "<p>", "count": grid * grid, "after": "]", "token": 7,
        },
    }}})
}

fn spec(texts: &Value) -> Spec {
    Spec::parse(&texts.to_string()).expect("a sound description").expect("of images")
}

/// How many of two lists of levels differ, and by how much at most.
fn difference(a: &[u8], b: &[u8]) -> (usize, u8) {
    assert_eq!(a.len(), b.len());
    let each = a.iter().zip(b).map(|(a, b)| a.abs_diff(*b));
    each.fold((0, 0), |(count, most), d| (count + usize::from(d > 0), most.max(d)))
}

/// Every kind of colours that formats have, turned images and the first of several: without a loss the same levels;
/// decoders of JPEG round their cosines, and the halves of colours, on their own.
#[test]
fn files_have_the_pixels_that_pillow_reads() {
    let bytes = read("pixels.safetensors");
    let golden = SafeTensors::deserialize(&bytes).expect("goldens");
    let files: Vec<&str> = golden.names().into_iter().filter(|name| !name.contains(' ')).collect();
    assert!(files.len() > 20, "{files:?}");
    for name in files {
        let bytes = read(name);
        let (want, got) = (golden.tensor(name).expect("pixels"), decode(&bytes).expect(name));
        assert_eq!(sides(&bytes).expect(name), (got.width, got.height), "{name}");
        assert_eq!([got.height as usize, got.width as usize, 3], want.shape(), "{name}");
        let (count, most) = difference(&got.pixels, want.data());
        let allowed = match name {
            "halved.jpg" => (got.pixels.len() / 3, 4),
            _ if name.ends_with(".jpg") => (got.pixels.len() / 20, 2),
            _ => (0, 0),
        };
        assert!(count <= allowed.0 && most <= allowed.1, "{name}: {count} levels differ, by {most} at most");
    }
}

/// Levels after resizing and cutting differ from Pillow's by one at most, and no more often than with the usual
/// backend of Transformers, torchvision, whose weights have 16 bits as well.
#[test]
fn processors_leave_the_same_pixels() {
    let bytes = read("pixels.safetensors");
    let golden = SafeTensors::deserialize(&bytes).expect("goldens");
    let settings: Value = serde_json::from_slice(&read("processors.json")).expect("settings");
    for name in golden.names().into_iter().filter(|name| name.ends_with(" pil")) {
        let [file, of] = [0, 1].map(|i| name.split(' ').nth(i).expect("a file and a processor"));
        let own = &settings[of];
        // (Mean 0 and deviation 1/255 leave the levels.)
        let plain = json!({ "image_mean": [0.0, 0.0, 0.0], "image_std": [1.0, 1.0, 1.0], "rescale_factor": 1.0 });
        let mut levels = own.clone();
        plain.as_object().into_iter().flatten().for_each(|(k, v)| levels[k] = v.clone());
        let picture = decode(&read(file)).expect(file);
        let got: Vec<u8> = spec(&texts(&levels)).pixels(&picture).expect(name).iter().map(|x| *x as u8).collect();
        let torchvision = golden.tensor(&name.replace(" pil", " torchvision")).expect("the other backend");
        let pil = golden.tensor(name).expect("levels");
        let ((count, most), theirs) = (difference(&got, pil.data()), difference(torchvision.data(), pil.data()));
        let from = difference(&got, torchvision.data());
        // (The backends have the odd one of the pixels around a smaller image on different sides; here it is where
        // the usual one, torchvision, has it.)
        if of == "clip_padded" {
            assert!(from.1 <= 2, "{name}: {from:?} from torchvision");
            continue;
        }
        assert!(count <= theirs.0 && most <= 1, "{name}: {count} of {} differ, by {most}; {theirs:?}", got.len());
        assert!(from.1 <= theirs.1.max(1), "{name}: {from:?} from torchvision, Pillow {theirs:?}");
        if let Ok(want) = golden.tensor(&format!("{file} {of}")) {
            let want: Vec<f32> =
                want.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            let got = spec(&texts(own)).pixels(&picture).expect(name);
            let same = |a: f32, b: f32| (a - b).abs() <= 1e-5;
            let differ = got.iter().zip(&want).filter(|(a, b)| !same(**a, **b)).count();
            assert!(differ <= count, "{name}: {differ} of {} normalized numbers", got.len());
        }
    }
}

#[test]
fn patches_are_cut_in_squares_after_a_class() {
    let mut of = texts(&json!({
        "size": { "height": 16, "width": 16 }, "resample": 2, "rescale_factor": 1.0, "image_mean": [0.0, 0.0, 0.0],
        "image_std": [1.0, 1.0, 1.0],
    }));
    let pixels: Vec<f32> = (0..3 * 16 * 16).map(|i| i as f32).collect();
    let grid = Grid { rows: 4, columns: 4 };
    let rows = spec(&of).patches(&pixels, grid).expect("rows");
    assert_eq!(rows.len(), 16 * 48);
    // The second patch of the second row, its third channel, second line.
    assert_eq!(rows[5 * 48 + 2 * 16 + 4..][..4], pixels[2 * 256 + 5 * 16 + 4..][..4]);
    let image = &mut of["media"]["image"];
    image["patches"]["square"] = json!(2);
    image["patches"]["class"] = json!(true);
    image["rows"] = json!({ "first": 4, "every": 4 });
    image["text"]["count"] = json!(4);
    let own = spec(&of);
    let squares = own.patches(&pixels, grid).expect("rows");
    assert!(squares[..48].iter().all(|x| *x == 0.0), "the class");
    let order = [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15];
    for (i, patch) in order.into_iter().enumerate() {
        assert_eq!(squares[(i + 1) * 48..][..48], rows[patch * 48..][..48], "patch {i}");
    }
    assert_eq!(own.chosen(grid).collect::<Vec<_>>(), [4, 8, 12, 16]);
    assert!(matches!(own.patches(&pixels[1..], grid), Err(Error::Pixels { found: 767, .. })));
}

/// The description of images with sides of their own, in squares of four patches of `side` pixels.
fn free(side: usize, (least, most): (u64, u64), plain: bool) -> Value {
    let (mean, std) = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]);
    let (mean, std) = if plain { ([0.0; 3], [1.0; 3]) } else { (mean, std) };
    json!({ "media": { "image": {
        "processor": {
            "size": { "min_pixels": least, "max_pixels": most, "multiple": 2 * side }, "crop": null, "resample": 3,
            "rescale": if plain { 1.0 } else { 1.0 / 255.0 }, "mean": mean, "std": std, "rgb": true,
        },
        "patches": {
            "side": side, "grid": 0, "most": most as usize / (side * side), "frames": 2, "channels": 3, "square": 2,
            "class": false,
        },
        "rows": { "first": 3, "every": 4 },
        "text": { "marker": "<i>", "before": "", "placeholder": "<p>", "count": 0, "after": "", "token": 7 },
    }}})
}

/// Images of sizes of their own become patches as Qwen2-VL's processors make them: levels are as near to
/// Pillow's as torchvision's.
#[test]
fn images_keep_their_sides() {
    let bytes = read("patches.safetensors");
    let golden = SafeTensors::deserialize(&bytes).expect("goldens");
    let ints = |name: &str| -> Vec<i32> {
        let raw = golden.tensor(name).expect(name).data();
        raw.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
    };
    let (plain, own) = (spec(&free(4, (400, 1600), true)), spec(&free(4, (400, 1600), false)));
    for file in ["rgb.png", "wide.png", "tall.png"] {
        let picture = decode(&read(file)).expect(file);
        let grid = plain.grid(picture.height, picture.width).expect("a size");
        assert_eq!([grid.rows as i32, grid.columns as i32], ints(&format!("{file} grid"))[..], "{file}");
        let patches = |spec: &Spec| spec.patches(&spec.pixels(&picture).expect("pixels"), grid).expect("patches");
        let got: Vec<u8> = patches(&plain).iter().map(|x| *x as u8).collect();
        let [pil, torchvision] = ["pil", "torchvision"].map(|of| golden.tensor(&format!("{file} {of}")).expect(of));
        let ((count, most), theirs) = (difference(&got, pil.data()), difference(torchvision.data(), pil.data()));
        assert!(count <= theirs.0 && most <= 1, "{file}: {count} of {} differ, by {most}; {theirs:?}", got.len());
        let want = golden.tensor(file).expect("normalized");
        let want = want.data().as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
        let differ = patches(&own).iter().zip(want).filter(|(a, b)| (**a - b).abs() > 1e-5).count();
        assert!(differ <= count, "{file}: {differ} normalized numbers, {count} levels");
        let text = plain.place(grid);
        assert_eq!((text.rows, text.columns), (grid.rows / 2, grid.columns / 2));
        assert_eq!(plain.chosen(grid).count(), text.count());
    }
    for case in ints("smart").chunks_exact(6) {
        let [height, width, least, most, h, w] = case else { panic!("six numbers") };
        let grid = spec(&free(14, (*least as u64, *most as u64), true)).grid(*height as u32, *width as u32);
        let grid = grid.expect("a size");
        assert_eq!([grid.rows as i32 * 14, grid.columns as i32 * 14], [*h, *w], "{case:?}");
    }
    let narrow = own.grid(1, 201).expect_err("narrow").to_string();
    assert!(narrow.contains("201x1 pixels is too narrow"), "{narrow}");
}

#[test]
fn markers_become_the_tokens_of_images() {
    let of = texts(&json!({
        "size": { "height": 8, "width": 8 }, "resample": 2, "rescale_factor": 1.0, "image_mean": [0.0, 0.0, 0.0],
        "image_std": [1.0, 1.0, 1.0],
    }));
    let place = spec(&of).text;
    assert_eq!(place.expanded("a<i>b<i>", &[4, 2]).expect("two"), "a[<p><p><p><p>]b[<p><p>]");
    assert_eq!(place.expanded("a", &[1, 2]).expect("first"), "[<p>][<p><p>]a");
    assert_eq!(place.expanded("a", &[]).expect("none"), "a");
    let refused = |prompt: &str, images| place.expanded(prompt, &vec![4; images]).expect_err("refused").to_string();
    assert_eq!(refused("a<i>", 2), "the prompt has 1 <i>, but 2 images are given: give one for each");
    assert_eq!(refused("a<i>", 0), "the prompt has 1 <i>, but 0 images are given: give one for each");
    assert!(refused("a<p>", 1).contains("write <i> for a whole one"));
    // A marker may have the text of a token inside.
    let place = Place { marker: "[<p>]".into(), ..place };
    assert_eq!(place.expanded("a[<p>]b", &[2]).expect("one"), "a[<p><p>]b");
    assert!(place.expanded("a[<p>]<p>", &[2]).is_err());
}

#[test]
fn what_is_no_image_is_refused_in_words() {
    let refused = |bytes: &[u8]| decode(bytes).expect_err("refused").to_string();
    assert!(refused(b"").contains("no image in a format that is read: PNG"));
    assert!(refused(b"%PDF-1.7").contains("no image in a format that is read"));
    let png = read("rgb.png");
    assert!(refused(&png[..png.len() / 2]).contains("broken"));
    // A header alone that claims a size without end.
    let mut bomb = png.clone();
    bomb[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    let crc = crc32(&bomb[12..29]);
    bomb[29..33].copy_from_slice(&crc.to_be_bytes());
    let said = refused(&bomb);
    assert!(said.contains("too large") && said.contains(&MOST_SIDE.to_string()), "{said}");
    assert!(matches!(Picture::new(2, 2, vec![0; 11]), Err(Error::Bytes { found: 11, .. })));
    assert!(matches!(Picture::new(MOST_SIDE, MOST_SIDE, vec![]), Err(Error::Large { .. })));
    assert!(matches!(Picture::new(0, 2, vec![]), Err(Error::Bytes { .. })));
}

/// As PNG has it.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _: usize| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Files with damaged bytes end in an image or an error.
#[test]
fn damaged_files_end_in_words() {
    let names = ["palette.png", "progressive.jpg", "halved.jpg", "exact.webp", "lossy.webp", "two.gif", "palette.bmp"];
    let (mut seed, mut refused) = (1_u64, 0);
    for name in names {
        let whole = read(name);
        for _ in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..3 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (seed >> 33) as usize % bytes.len();
                bytes[at] = (seed >> 24) as u8;
            }
            refused += usize::from(decode(&bytes).is_err());
        }
        (0..whole.len()).step_by(37).for_each(|end| _ = decode(&whole[..end]));
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn damaged_descriptions_are_refused() {
    let sound = texts(&json!({
        "size": { "height": 8, "width": 8 }, "resample": 2, "rescale_factor": 1.0, "image_mean": [0.0, 0.0, 0.0],
        "image_std": [1.0, 1.0, 1.0],
    }));
    assert!(Spec::parse("{}").expect("no media").is_none());
    for (at, value) in [
        ("/patches/grid", json!(3)),
        ("/patches/side", json!(u64::MAX)),
        ("/patches/square", json!(0)),
        ("/rows/every", json!(0)),
        ("/rows/first", json!(9)),
        ("/text/count", json!(5)),
        ("/processor/size", json!({ "shortest_edge": 8 })),
    ] {
        let mut damaged = sound.clone();
        *damaged.pointer_mut(&format!("/media/image{at}")).expect("a member") = value;
        assert!(Spec::parse(&damaged.to_string()).is_err(), "{at}");
    }
    let sound = free(4, (400, 1600), true);
    for (at, value) in [
        ("/patches/most", json!(99)),
        ("/patches/most", json!(u64::MAX)),
        ("/patches/frames", json!(0)),
        ("/patches/square", json!(3)),
        ("/patches/class", json!(true)),
        ("/rows/every", json!(2)),
        ("/text/count", json!(5)),
        ("/processor/size/min_pixels", json!(1601)),
        ("/processor/size/multiple", json!(4)),
        ("/processor/size", json!({ "height": 8, "width": 8 })),
    ] {
        let mut damaged = sound.clone();
        *damaged.pointer_mut(&format!("/media/image{at}")).expect("a member") = value;
        assert!(Spec::parse(&damaged.to_string()).is_err(), "{at}");
    }
}
