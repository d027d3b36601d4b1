//! Prompts with images, against Transformers (`tests/goldens/images.py`): towers, steps that take their rows, and
//! generations.

use crate::ready;
use llmcc_cli::loaded::{GenOptions, Model};
use llmcc_cli::session::CompileOptions;
use llmcc_frontends::Checkpoint;
use llmcc_ir::kv::KvDType;
use llmcc_ir::quant::Format;
use llmcc_ir::target;
use llmcc_media::image::{Grid, Spec};
use llmcc_tests::{Artifact, golden, options};
use std::path::{Path, PathBuf};

/// A model that sees, its goldens, and what it says of its images.
struct Seeing {
    model: Model,
    golden: Checkpoint,
    spec: Spec,
    artifact: Artifact,
}

fn with_image(folder: &Path) -> CompileOptions {
    CompileOptions { with_image: true, ..options(folder) }
}

impl Seeing {
    fn load(name: &str, compile: impl Fn(&CompileOptions) -> Artifact) -> Seeing {
        let folder = golden(name);
        let artifact = compile(&with_image(&folder));
        let document = llmcc_frontends::image_document(&Checkpoint::open(&folder).expect("a checkpoint"));
        let texts = serde_json::json!({ "media": document.expect("a tower") }).to_string();
        let spec = Spec::parse(&texts).expect("sound").expect("of images");
        let golden = Checkpoint::open(&folder.join("images.safetensors")).expect("goldens");
        Seeing { model: artifact.open(2), golden, spec, artifact }
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.golden.tensor(name).expect(name).to_f32()
    }

    fn ints(&self, name: &str) -> Vec<i32> {
        let raw = self.golden.tensor(name).expect(name).data;
        raw.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
    }

    /// The rows of an image's pixels, which are so many patches, by the entry that makes them.
    fn rows(&self, model: &Model, (pixels, grid): (&[f32], Grid)) -> Vec<f32> {
        let patches = self.spec.patches(pixels, grid).expect("as many as the tower reads");
        let n = self.spec.tokens(grid);
        let seq = model.seq_new().expect("a sequence");
        let chosen: Vec<u32> = self.spec.chosen(grid).collect();
        let places = || self.spec.places(grid).flat_map(|(y, x)| [0, y as i32, x as i32]);
        let positions: Vec<i32> = if self.is_free() { places().collect() } else { vec![] };
        let (rows, _) = model.run_at(1, (&vec![0; n], &patches), &positions, &vec![seq; n], &chosen).expect("rows");
        model.seq_free(seq).expect("freed");
        rows
    }

    /// Whether images have sides of their own.
    fn is_free(&self) -> bool {
        self.spec.patches.grid == 0
    }

    /// Pixels and patches of both images of the goldens.
    fn pixels(&self) -> [(Vec<f32>, Grid); 2] {
        if self.is_free() {
            let grids = [Grid { rows: 4, columns: 6 }, Grid { rows: 6, columns: 4 }];
            return [0, 1].map(|i| (self.floats(&format!("pixels{i}")), grids[i]));
        }
        let (all, side) = (self.floats("pixels"), self.spec.patches.grid);
        [0, 1].map(|i| (all[i * all.len() / 2..][..all.len() / 2].to_vec(), Grid { rows: side, columns: side }))
    }

    /// The rows of both images, and rows and columns of their tokens.
    fn images(&self) -> (Vec<f32>, Vec<[u32; 2]>) {
        let both = self.pixels();
        let place = |grid: &Grid| self.spec.place(*grid);
        let grids = both.iter().map(|(_, grid)| [place(grid).rows as u32, place(grid).columns as u32]).collect();
        (both.iter().flat_map(|(pixels, grid)| self.rows(&self.model, (pixels, *grid))).collect(), grids)
    }

    /// The positions along axes of tokens with these images, as a prompt has them; none where tokens have none.
    fn positions(&self, tokens: &[i32], grids: &[[u32; 2]]) -> Vec<i32> {
        let (mut out, mut next, mut i, mut grids) = (vec![], 0, 0, grids.iter());
        while self.is_free() && i < tokens.len() {
            let (rows, columns) = match tokens[i] == self.spec.text.token {
                true => grids.next().map(|grid| (grid[0] as i32, grid[1] as i32)).expect("an image"),
                false => (1, 1),
            };
            out.extend((0..rows * columns).flat_map(|n| [next, next + n / columns, next + n % columns]));
            (i, next) = (i + (rows * columns) as usize, next + rows.max(columns));
        }
        out
    }

    /// Rows in the places of the tokens that stand for them; of others what nobody may read.
    fn given(&self, tokens: &[i32], rows: &[f32]) -> Vec<f32> {
        let width = self.model.info().hidden;
        let mut rows = rows.chunks_exact(width);
        let of = |t: &i32| match *t == self.spec.text.token {
            true => rows.next().expect("a row for each").to_vec(),
            false => vec![f32::NAN; width],
        };
        tokens.iter().flat_map(of).collect()
    }

    /// Logits of all tokens, in steps that end at these.
    fn logits(&self, model: &Model, (tokens, at): (&[i32], &[i32]), given: &[f32], ends: &[usize]) -> Vec<f32> {
        let (seq, width) = (model.seq_new().expect("a sequence"), self.model.info().hidden);
        let (mut all, mut from) = (vec![], 0);
        for &to in ends {
            let part = &tokens[from..to];
            // A step without images takes no rows.
            let sees = part.contains(&self.spec.text.token);
            let hidden = if sees { &given[from * width..to * width] } else { &[] };
            let rows: Vec<u32> = (0..part.len() as u32).collect();
            let at = if at.is_empty() { at } else { &at[3 * from..3 * to] };
            all.extend(model.run_at(0, (part, hidden), at, &vec![seq; part.len()], &rows).expect("logits").0);
            from = to;
        }
        model.seq_free(seq).expect("freed");
        all
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

fn largest(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs()).fold(0.0, f64::max)
}

/// The fixtures, with the ends of the steps that their prompts may be cut into.
const ALL: &[(&str, &[usize])] = &[
    ("llava", &[3, 5, 20, 21, 41, 44, 80, 87]),
    ("gemma3_image", &[2, 6, 15, 16, 21, 30, 36, 37]),
    ("qwen2_vl", &[3, 7, 9, 13, 18, 21, 30, 31]),
];

fn wanted(name: &str) -> bool {
    std::env::var("LLMCC_GOLDENS").is_ok_and(|some| !some.split(',').any(|s| s == name))
}

/// Rows of images and logits of texts with them are as far from Transformers' as its own in f32, twice; the same bits
/// come of any cuts of the prompt and any number of threads, and the same text as by `generate`.
#[test]
fn images_mean_what_transformers_says() {
    for (name, cuts) in ALL.iter().filter(|(name, _)| !wanted(name)) {
        let seeing = Seeing::load(name, Artifact::compile);
        let (model, (rows, grids)) = (&seeing.model, seeing.images());
        let (error, entitled) = (largest(&rows, &seeing.floats("rows")), f64::from(seeing.floats("rows_error_f32")[0]));
        assert!(error <= 2.0 * entitled, "{name}: rows are off by {error:e}, Transformers in f32 by {entitled:e}");
        let tokens = seeing.ints("tokens");
        let (given, at) = (seeing.given(&tokens, &rows), seeing.positions(&tokens, &grids));
        let placed = (&tokens[..], &at[..]);
        let logits = seeing.logits(model, placed, &given, &[tokens.len()]);
        let entitled = f64::from(seeing.floats("error_f32").into_iter().fold(0.0, f32::max));
        let error = largest(&logits, &seeing.floats("logits"));
        assert!(error <= 2.0 * entitled, "{name}: logits are off by {error:e}, Transformers in f32 by {entitled:e}");
        let again = seeing.logits(model, placed, &given, cuts);
        assert!(bits(&again) == bits(&logits), "{name}: other bits in other steps");
        let one = seeing.artifact.open(1);
        let [(pixels, grid), _] = seeing.pixels();
        assert!(bits(&seeing.rows(&one, (&pixels, grid))) == bits(&rows[..rows.len() / 2]), "{name}: one thread");
        assert!(bits(&seeing.logits(&one, placed, &given, &[tokens.len()])) == bits(&logits), "{name}: one thread");
        let greedy = seeing.ints("greedy");
        let many = GenOptions { max_tokens: greedy.len() as u32, no_text: true, ..GenOptions::default() };
        let how = GenOptions { images: rows, grids, ..many };
        let text = |seq| model.generate(seq, &tokens, &how).expect("a generation");
        let made: Vec<i32> = text(None).map(|piece| piece.expect("a piece").token).collect();
        assert_eq!(made, greedy, "{name}");
        prefixes(&seeing, &how, &tokens);
        refusals(&seeing, &how, &tokens);
    }
}

/// A sequence keeps a prompt's beginning where its images are the same, and no further.
fn prefixes(seeing: &Seeing, how: &GenOptions, tokens: &[i32]) {
    let model = &seeing.model;
    let seq = model.seq_new().expect("a sequence");
    let reused = |how: &GenOptions| {
        let mut generation = model.generate(Some(seq), tokens, how).expect("a generation");
        let made: Vec<i32> = (&mut generation).map(|piece| piece.expect("a piece").token).collect();
        (made, generation.stats().expect("counts").reused_tokens as usize)
    };
    let first = reused(how);
    assert_eq!(first.1, 0);
    let again = reused(how);
    assert_eq!(again, (first.0.clone(), tokens.len() - 1));
    // The second image in place of the first one, and the other way round.
    let half = how.images.len() / 2;
    let swapped = [&how.images[half..], &how.images[..half]].concat();
    let other = GenOptions { images: swapped, grids: how.grids.iter().rev().copied().collect(), ..how.clone() };
    let place = tokens.iter().position(|t| *t == seeing.spec.text.token).expect("an image");
    let swapped = reused(&other);
    assert_eq!(swapped.1, place, "the text before the first image");
    let alone: Vec<i32> = model
        .generate(None, tokens, &other)
        .expect("a generation")
        .map(|piece| piece.expect("a piece").token)
        .collect();
    assert_eq!(swapped.0, alone);
    model.seq_free(seq).expect("freed");
}

fn refusals(seeing: &Seeing, how: &GenOptions, tokens: &[i32]) {
    let model = &seeing.model;
    let refused = |how: &GenOptions| model.generate(None, tokens, how).err().expect("refused").to_string();
    let none = GenOptions { images: vec![], ..how.clone() };
    assert!(refused(&none).contains("stand for rows of images, and 0 rows are given"), "{}", refused(&none));
    let more = GenOptions { images: [&how.images[..], &how.images[..model.info().hidden]].concat(), ..how.clone() };
    assert!(refused(&more).contains("rows are given"), "{}", refused(&more));
    if seeing.is_free() {
        let unplaced = GenOptions { grids: vec![], ..how.clone() };
        assert!(refused(&unplaced).contains("give the rows and columns of each image's tokens"));
    }
    let seq = model.seq_new().expect("a sequence");
    let error = model.step(tokens, &vec![seq; tokens.len()], &[0]).expect_err("no rows").to_string();
    assert!(error.contains("stands for a row of an image, but none are given"), "{error}");
    model.seq_free(seq).expect("freed");
    let error = model.image_rows(b"no image").expect_err("no image").to_string();
    assert!(error.contains("no image in a format that is read"), "{error}");
}

/// The same on a GPU, which an emulator is: rows, logits of a prompt in one step and in several, and a text.
#[test]
fn gpus_see_the_same() {
    if !ready() {
        return;
    }
    let compile = |o: &CompileOptions| {
        let targets = vec![target::find("sm90").expect("a target")];
        let weights = Some(Format::parse("f32").expect("a format"));
        let o = CompileOptions { targets, weights, kv: Some(KvDType::F32), act: None, ..o.clone() };
        Artifact::compile_unless(&o, |_| false).expect("nothing is left out")
    };
    for (name, cuts) in ALL.iter().filter(|(name, _)| !wanted(name)) {
        let seeing = Seeing::load(name, compile);
        let (rows, grids) = seeing.images();
        let (error, entitled) = (largest(&rows, &seeing.floats("rows")), f64::from(seeing.floats("rows_error_f32")[0]));
        assert!(error <= 2.0 * entitled, "{name}: rows are off by {error:e}, Transformers in f32 by {entitled:e}");
        let tokens = seeing.ints("tokens");
        let (given, at) = (seeing.given(&tokens, &rows), seeing.positions(&tokens, &grids));
        let entitled = f64::from(seeing.floats("error_f32").into_iter().fold(0.0, f32::max));
        for ends in [&[tokens.len()][..], cuts] {
            let logits = seeing.logits(&seeing.model, (&tokens, &at), &given, ends);
            let error = largest(&logits, &seeing.floats("logits"));
            assert!(
                error <= 2.0 * entitled,
                "{name}: logits are off by {error:e}, Transformers in f32 by {entitled:e}"
            );
        }
        let greedy = seeing.ints("greedy");
        let how = GenOptions { max_tokens: 3, no_text: true, images: rows, grids, ..GenOptions::default() };
        let text = seeing.model.generate(None, &tokens, &how).expect("a generation");
        let made: Vec<i32> = text.map(|piece| piece.expect("a piece").token).collect();
        assert_eq!(made, greedy[..3], "{name}");
    }
}

fn picture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("goldens/pictures").join(name)
}

/// Files become the rows of the pixels that the processor makes of them.
#[test]
fn files_become_rows() {
    for (name, _) in ALL.iter().filter(|(name, _)| !wanted(name)) {
        let seeing = Seeing::load(name, Artifact::compile);
        let file = std::fs::read(picture("rgb.png")).expect("a file");
        let picture = llmcc_media::image::decode(&file).expect("an image");
        let pixels = seeing.spec.pixels(&picture).expect("pixels");
        let grid = seeing.spec.grid(picture.height, picture.width).expect("a size");
        let rows = seeing.model.image_rows(&file).expect("rows");
        assert!(bits(&rows) == bits(&seeing.rows(&seeing.model, (&pixels, grid))), "{name}");
        let place = seeing.spec.place(grid);
        assert_eq!(rows.len(), place.count() * seeing.model.info().hidden, "{name}");
        assert_eq!(
            seeing.model.image_grid(&file).expect("a grid"),
            [place.rows as u32, place.columns as u32],
            "{name}"
        );
    }
}

/// A model compiled without its tower has today's entries, and refuses images in words.
#[test]
fn towers_are_left_out_unless_asked_for() {
    let model = Artifact::compile(&options(&golden("llava"))).open(1);
    assert_eq!(model.info().entries, 1);
    let error = model.image_rows(b"").expect_err("no tower").to_string();
    assert!(error.contains("sees no images") && error.contains("--with-image"), "{error}");
    let how = GenOptions { images: vec![0.0; model.info().hidden], no_text: true, ..GenOptions::default() };
    let error = model.generate(None, &[3, 4], &how).err().expect("no tower").to_string();
    assert!(error.contains("takes no images"), "{error}");
}
