//! Towers, and texts with images, against Transformers: `tests/goldens/images.py`.

use super::*;
use llmcc_ir::graph::{ENCODE_IMAGE, STEP};

/// A fixture, what was lifted of it with its tower, and its goldens.
struct Seen {
    ckpt: Checkpoint,
    module: Module,
    golden: Checkpoint,
    document: Value,
}

impl Seen {
    fn load(name: &str) -> Seen {
        let ckpt = Checkpoint::open(&golden(name)).unwrap();
        let module = lift(&ckpt, &Options { with_image: true, ..EXACT }).unwrap();
        let document = image_document(&ckpt).unwrap()["image"].clone();
        let golden = Checkpoint::open(&golden(name).join("images.safetensors")).unwrap();
        Seen { ckpt, module, golden, document }
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        self.golden.tensor(name).unwrap().to_f32()
    }

    fn run(&self, entry: usize, batch: &Batch) -> Vec<f64> {
        evaluated(&self.ckpt, &self.module, entry, batch)
    }

    /// A number of the document.
    fn size(&self, at: &str) -> usize {
        self.document.pointer(at).and_then(Value::as_u64).unwrap_or_else(|| panic!("{at}")) as usize
    }

    /// The rows of an image's pixels `[3, height, width]`, patch by patch in squares, and the places of patches.
    fn patches(&self, pixels: &[f32], [height, width]: [usize; 2]) -> (Vec<f32>, Vec<i32>) {
        let [side, square, frames] = ["side", "square", "frames"].map(|name| self.size(&format!("/patches/{name}")));
        let across = width / (side * square);
        let mut places = vec![];
        let class = self.document["patches"]["class"] == true;
        let mut rows = vec![0.0; if class { 3 * side * side } else { 0 }];
        for big in 0..across * height / (side * square) {
            let (top, left) = (big / across * square, big % across * square);
            for small in 0..square * square {
                let (row, column) = (top + small / square, left + small % square);
                places.extend([0, row as i32, column as i32]);
                for channel in 0..3 {
                    let start = (channel * height + row * side) * width + column * side;
                    let line = |line: usize| &pixels[start + line * width..][..side];
                    (0..frames * side).for_each(|i| rows.extend_from_slice(line(i % side)));
                }
            }
        }
        (rows, places)
    }

    /// The rows of an image.
    fn encoded(&self, pixels: &[f32], sides: [usize; 2]) -> Vec<f64> {
        let (patches, places) = self.patches(pixels, sides);
        let tokens = places.len() / 3 + usize::from(self.document["patches"]["class"] == true);
        let rows = (self.size("/rows/first")..tokens).step_by(self.size("/rows/every")).collect();
        let axes = if self.is_free() { places } else { vec![] };
        self.run(1, &Batch { hidden: patches, axes, out_rows: rows, ..Batch::single(&vec![0; tokens], 0) })
    }

    /// Whether images have sides of their own.
    fn is_free(&self) -> bool {
        self.size("/patches/grid") == 0
    }

    /// Pixels and sides of both images.
    fn images(&self) -> Vec<(Vec<f32>, [usize; 2])> {
        let side = self.size("/patches/side");
        if self.is_free() {
            let sides = [[4 * side, 6 * side], [6 * side, 4 * side]];
            return (0..2).map(|i| (self.floats(&format!("pixels{i}")), sides[i])).collect();
        }
        let (all, side) = (self.floats("pixels"), side * self.size("/patches/grid"));
        all.chunks_exact(all.len() / 2).map(|image| (image.to_vec(), [side; 2])).collect()
    }

    /// The positions along axes of tokens with these images; none where tokens have none.
    fn positions(&self, tokens: &[i32], images: &[(Vec<f32>, [usize; 2])]) -> Vec<i32> {
        let (token, unit) =
            (self.size("/text/token") as i32, self.size("/patches/side") * self.size("/patches/square"));
        let (mut out, mut next, mut images) = (vec![], 0, images.iter());
        let mut i = 0;
        while self.is_free() && i < tokens.len() {
            let (rows, columns) = match tokens[i] == token {
                true => images.next().map(|(_, [h, w])| ((h / unit) as i32, (w / unit) as i32)).unwrap(),
                false => (1, 1),
            };
            out.extend((0..rows * columns).flat_map(|n| [next, next + n / columns, next + n % columns]));
            (i, next) = (i + (rows * columns) as usize, next + rows.max(columns));
        }
        out
    }

    fn tokens(&self) -> Vec<i32> {
        let raw = self.golden.tensor("tokens").unwrap().data;
        raw.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
    }

    /// Rows in the places of the tokens that stand for them.
    fn given(&self, tokens: &[i32], rows: &[f64]) -> Vec<f32> {
        let (width, token) = (self.module.info.hidden, self.size("/text/token") as i32);
        let mut rows = rows.chunks_exact(width);
        let of = |t: &i32| match *t == token {
            true => rows.next().expect("a row for each").iter().map(|x| *x as f32).collect(),
            false => vec![f32::NAN; width],
        };
        tokens.iter().flat_map(of).collect()
    }
}

fn largest(a: &[f64], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - f64::from(*b)).abs()).fold(0.0, f64::max)
}

/// Rows of images are as in Transformers in f64, and so are logits of texts in which they stand.
#[test]
fn images_mean_what_transformers_says() {
    for name in ["llava", "gemma3_image", "qwen2_vl"] {
        let seen = Seen::load(name);
        assert_eq!(seen.module.entries.iter().map(|e| &*e.name).collect::<Vec<_>>(), [STEP, ENCODE_IMAGE]);
        assert_eq!(verify_module(&seen.module), [], "{name}");
        let (images, want) = (seen.images(), seen.floats("rows"));
        let rows: Vec<f64> = images.iter().flat_map(|(pixels, sides)| seen.encoded(pixels, *sides)).collect();
        let (error, entitled) = (largest(&rows, &want), f64::from(seen.floats("rows_error_f32")[0]));
        assert!(error <= entitled, "{name}: rows are off by {error:e}, Transformers in f32 by {entitled:e}");
        let tokens = seen.tokens();
        let hidden = seen.given(&tokens, &rows);
        let axes = seen.positions(&tokens, &images);
        let mut batch = Batch { out_rows: (0..tokens.len()).collect(), hidden, axes, ..Batch::single(&tokens, 0) };
        if name == "gemma3_image" {
            // Tokens of an image see each other.
            batch = batch.with_runs(seen.size("/text/token") as i32);
        }
        let logits = seen.run(0, &batch);
        let entitled = f64::from(seen.floats("error_f32").into_iter().fold(0.0, f32::max));
        let error = largest(&logits, &seen.floats("logits"));
        assert!(error <= entitled, "{name}: logits are off by {error:e}, Transformers in f32 by {entitled:e}");
    }
}
