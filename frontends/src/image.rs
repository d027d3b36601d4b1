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
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
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
        }
    }

    /// `SiglipImageProcessor` and `Gemma3ImageProcessor`, for images of so many pixels a side.
    pub(crate) fn siglip(side: usize) -> Processor {
        let side = side as u64;
        let (mean, std) = ([0.5; 3], [0.5; 3]);
        Processor { size: Size::Whole([side; 2]), crop: None, resample: 2, rescale: 1.0 / 255.0, mean, std, rgb: true }
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
        if let Some(size) = there("size") {
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

    /// Whether its images have so many pixels a side, from which patches are cut.
    ///
    /// # Errors
    /// They have others.
    pub(crate) fn suits(&self, ckpt: &Checkpoint, side: usize) -> Result<(), FrontendError> {
        let all = match (self.crop, self.size) {
            (Some(crop), _) => Some(crop),
            (None, Size::Whole(size)) => Some(size),
            (None, Size::Shortest(_)) => None,
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
