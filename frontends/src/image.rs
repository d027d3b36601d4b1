//! How the pixels that a tower sees are made of an image: `preprocessor_config.json` and `processor_config.json`, as
//! the image processors of Transformers read them.

use crate::checkpoint::Checkpoint;
use crate::error::FrontendError;
use serde_json::{Map, Value, json};

/// The files; the second one has the fields in an object of their own, or not.
const FILES: [&str; 2] = ["preprocessor_config.json", "processor_config.json"];

/// Fields that may say something else than the one value that is supported.
const ONLY: [(&str, bool); 4] =
    [("do_resize", true), ("do_rescale", true), ("do_normalize", true), ("do_pan_and_scan", false)];

/// The most pixels of a side.
const MOST_SIDE: u64 = 1 << 14;

/// An image processor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Processor {
    /// Height and width that images get; or the shorter side alone, the longer one keeping its ratio.
    size: Size,
    /// Height and width that are cut from the middle.
    crop: Option<[u64; 2]>,
    /// How new pixels are made, as numbered by Pillow: 2 is bilinear, 3 bicubic.
    resample: u64,
    /// Multiplies channels of 8 bits.
    rescale: f64,
    mean: [f64; 3],
    std: [f64; 3],
    /// Images become RGB.
    rgb: bool,
    /// Fields that must have these values, if they are there.
    expected: Vec<(&'static str, u64)>,
    /// Most pixels of an image, whatever the files say.
    limit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    /// Sides of their own, multiples of a number of pixels; fewest and most pixels of an image.
    Own {
        least: u64,
        most: u64,
        multiple: u64,
    },
    Shortest(u64),
    Whole([u64; 2]),
}

impl Processor {
    /// `CLIPImageProcessor`, for images of so many pixels a side.
    pub(crate) fn clip(side: usize) -> Processor {
        let side = side as u64;
        Processor {
            size: Size::Shortest(side),
            crop: Some([side; 2]),
            resample: 3,
            rescale: 1.0 / 255.0,
            mean: [0.48145466, 0.4578275, 0.40821073],
            std: [0.26862954, 0.26130258, 0.27577711],
            rgb: true,
            expected: vec![],
            limit: u64::MAX,
        }
    }

    /// `Qwen2VLImageProcessor`, for patches of so many pixels a side in squares of so many patches a side, in films
    /// of so many frames; at most so many patches.
    pub(crate) fn qwen2_vl([side, square, frames]: [usize; 3], patches: usize) -> Processor {
        let [side, square, frames] = [side, square, frames].map(|n| n as u64);
        let limit = patches as u64 * side * side;
        let size = Size::Own { least: 56 * 56, most: 28 * 28 * 1280, multiple: side * square };
        let expected = vec![("patch_size", side), ("merge_size", square), ("temporal_patch_size", frames)];
        Processor { size, crop: None, expected, limit, ..Processor::clip(1) }
    }

    /// `SiglipImageProcessor` and `Gemma3ImageProcessor`, for images of so many pixels a side.
    pub(crate) fn siglip(side: usize) -> Processor {
        let side = side as u64;
        let (mean, std) = ([0.5; 3], [0.5; 3]);
        Processor { size: Size::Whole([side; 2]), crop: None, resample: 2, mean, std, ..Processor::clip(1) }
    }

    /// That of a checkpoint; where its files say nothing, `default`.
    ///
    /// # Errors
    /// A file is malformed, or asks for something that is not supported.
    pub(crate) fn of(ckpt: &Checkpoint, default: Processor) -> Result<Processor, FrontendError> {
        for name in FILES {
            let Some(json) = ckpt.json(name)? else { continue };
            let fields = json.get("image_processor").unwrap_or(&json);
            let own =
                fields.as_object().filter(|fields| fields.contains_key("image_mean") || fields.contains_key("size"));
            if let Some(fields) = own {
                return default.with(fields).map_err(|what| refused(ckpt, name, what));
            }
        }
        Ok(default)
    }

    /// With the fields of a file.
    fn with(mut self, fields: &Map<String, Value>) -> Result<Processor, String> {
        for (name, only) in ONLY {
            if fields.get(name).and_then(Value::as_bool).is_some_and(|value| value != only) {
                return Err(format!("`{name}` is {}, but only {only} is supported", !only));
            }
        }
        let there = |name: &str| fields.get(name).filter(|v| !v.is_null());
        for (name, value) in &self.expected {
            if let Some(other) = there(name).filter(|v| v.as_u64() != Some(*value)) {
                return Err(format!("`{name}` is {other}, but the tower has {value}"));
            }
        }
        if let Size::Own { least, most, multiple } = self.size {
            let (least, most) = own_size(&there, (least, most))?;
            self.size = Size::Own { least, most, multiple };
        } else if let Some(size) = there("size") {
            self.size = size_of(size).ok_or_else(|| wrong("size", size, "`shortest_edge`, or `height` and `width`"))?;
        }
        if let Some(crop) = there("crop_size").filter(|_| self.crop.is_some()) {
            self.crop = Some(sides(crop).ok_or_else(|| wrong("crop_size", crop, "`height` and `width`"))?);
        }
        match there("do_center_crop").and_then(Value::as_bool) {
            Some(false) => self.crop = None,
            Some(true) if self.crop.is_none() => {
                let crop = there("crop_size").and_then(sides);
                self.crop = Some(crop.ok_or_else(|| "`do_center_crop` is true without a `crop_size`".to_string())?);
            }
            _ => {}
        }
        if let Some(resample) = there("resample") {
            let known = resample.as_u64().filter(|n| [2, 3].contains(n));
            self.resample = known.ok_or_else(|| wrong("resample", resample, "2 (bilinear) or 3 (bicubic)"))?;
        }
        if let Some(factor) = there("rescale_factor") {
            self.rescale = factor.as_f64().ok_or_else(|| wrong("rescale_factor", factor, "a number"))?;
        }
        if let Some(mean) = there("image_mean") {
            self.mean = three(mean).ok_or_else(|| wrong("image_mean", mean, "three numbers"))?;
        }
        if let Some(std) = there("image_std") {
            let found = three(std).filter(|std| std.iter().all(|x| *x != 0.0));
            self.std = found.ok_or_else(|| wrong("image_std", std, "three numbers other than 0"))?;
        }
        self.rgb = there("do_convert_rgb").and_then(Value::as_bool).unwrap_or(self.rgb);
        Ok(self)
    }

    /// Whether its images have so many pixels a side, from which patches are cut; none: sides of their own.
    ///
    /// # Errors
    /// They have others.
    pub(crate) fn suits(&self, ckpt: &Checkpoint, side: Option<usize>) -> Result<(), FrontendError> {
        let all = match (self.crop, self.size) {
            (Some(crop), _) => Some(crop),
            (None, Size::Whole(size)) => Some(size),
            (None, Size::Shortest(_) | Size::Own { .. }) => None,
        };
        let Some(side) = side else {
            return match self.crop {
                None => Ok(()),
                Some(_) => Err(refused(ckpt, FILES[0], "images are cut, but the tower sees whole ones".into())),
            };
        };
        let side = side as u64;
        // A convolution leaves pixels out that are no whole patch.
        if all.is_some_and(|all| all == [side; 2]) {
            return Ok(());
        }
        let what = match all {
            Some([height, width]) => format!("images become {height}x{width} pixels, but the tower sees {side}x{side}"),
            None => format!("images become of any width, but the tower sees {side}x{side} pixels"),
        };
        Err(refused(ckpt, FILES[0], what))
    }

    /// For the runtime.
    pub(crate) fn document(&self) -> Value {
        let size = match self.size {
            Size::Shortest(side) => json!({ "shortest_edge": side }),
            Size::Whole([height, width]) => json!({ "height": height, "width": width }),
            Size::Own { least, most, multiple } => {
                let most = most.min(self.limit);
                json!({ "min_pixels": least.min(most), "max_pixels": most, "multiple": multiple })
            }
        };
        json!({
            "size": size,
            "crop": self.crop.map(|[height, width]| json!({ "height": height, "width": width })),
            "resample": self.resample,
            "rescale": self.rescale,
            "mean": self.mean,
            "std": self.std,
            "rgb": self.rgb,
        })
    }
}

fn refused(ckpt: &Checkpoint, name: &str, what: String) -> FrontendError {
    FrontendError::Output {
        path: ckpt.dir().join(name),
        what,
        help: "correct the file, or leave out --with-image: then the text model alone is compiled",
    }
}

fn wrong(field: &str, found: &Value, expected: &str) -> String {
    format!("`{field}` is {found}; expected {expected}")
}

/// Fewest and most pixels: `min_pixels` and `max_pixels`, or `{"shortest_edge": n, "longest_edge": n}` as `size`.
fn own_size<'a>(there: &impl Fn(&str) -> Option<&'a Value>, (least, most): (u64, u64)) -> Result<(u64, u64), String> {
    let pixels = |v: &Value| v.as_u64().filter(|n| (1..=MOST_SIDE * MOST_SIDE).contains(n));
    let (mut least, mut most) = (least, most);
    if let Some(size) = there("size") {
        let both = ["shortest_edge", "longest_edge"].map(|name| size.get(name).and_then(pixels));
        let [Some(shortest), Some(longest)] = both else {
            return Err(wrong("size", size, "`shortest_edge` and `longest_edge`, the fewest and the most pixels"));
        };
        (least, most) = (shortest, longest);
    }
    for (name, own) in [("min_pixels", &mut least), ("max_pixels", &mut most)] {
        if let Some(value) = there(name) {
            *own = pixels(value).ok_or_else(|| wrong(name, value, "a number of pixels"))?;
        }
    }
    if least > most {
        return Err(format!("images have {least} pixels or more, and {most} or fewer"));
    }
    Ok((least, most))
}

/// `{"shortest_edge": n}`, or sides, or a number.
fn size_of(v: &Value) -> Option<Size> {
    let side = |v: &Value| v.as_u64().filter(|n| (1..=MOST_SIDE).contains(n));
    match v.get("shortest_edge") {
        Some(shortest) => side(shortest).map(Size::Shortest),
        None => v.as_object().map_or_else(|| side(v).map(Size::Shortest), |_| sides(v).map(Size::Whole)),
    }
}

/// `{"height": n, "width": n}`, or a number for both.
fn sides(v: &Value) -> Option<[u64; 2]> {
    let side = |v: &Value| v.as_u64().filter(|n| (1..=MOST_SIDE).contains(n));
    match v.as_object() {
        Some(sides) => Some([side(sides.get("height")?)?, side(sides.get("width")?)?]),
        None => Some([side(v)?; 2]),
    }
}

fn three(v: &Value) -> Option<[f64; 3]> {
    let all: Vec<f64> = v.as_array()?.iter().map(Value::as_f64).collect::<Option<_>>()?;
    all.try_into().ok()
}
