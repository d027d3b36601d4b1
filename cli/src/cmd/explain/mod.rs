//! `llmcc explain`: a page about an artifact, of the figures in its manifest. Nothing of the artifact is run.

mod page;

use crate::args::ExplainArgs;
use crate::digest::hex;
use crate::manifest::Manifest;
use crate::{Error, output, template};
use llmcc_codegen::sealed::Sealed;
use page::page;
use std::path::Path;

/// The page's template; it needs nothing from elsewhere.
const TEMPLATE: &str = include_str!("report.html");

/// Writes the page.
///
/// # Errors
/// Not an artifact; a file that cannot be written.
pub fn run(args: &ExplainArgs) -> Result<(), Error> {
    let (sealed, manifest) = (Sealed::open(&args.artifact)?, Manifest::of(&args.artifact)?);
    let text = template::filled(TEMPLATE, &page(&manifest, &hex(&sealed.root()), sealed.image.file_len))?;
    match args.html == Path::new("-") {
        true => super::print(&text),
        false => output::write_text(&args.html, &text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Tensor;

    /// Names of a stranger's checkpoint are text, and a manifest without figures makes a page, too.
    #[test]
    fn texts_are_no_markup() {
        let mut manifest = Manifest { model: "<script>alert(1)</script>".into(), ..Manifest::default() };
        let name = "layers.0.<img src=x>".into();
        let tensor = Tensor { name, storage: "w4g32[2, 2]".into(), relative_rms_error: Some(0.1), ..Tensor::default() };
        manifest.weights.tensors.push(tensor);
        for manifest in [manifest, Manifest::default()] {
            let text = template::filled(TEMPLATE, &page(&manifest, "00", 1)).expect("a page");
            assert!(!text.contains("<script") && !text.contains("<img"), "{text}");
            assert!(text.ends_with("</html>\n") || text.ends_with("</html>"), "{text}");
        }
    }
}
