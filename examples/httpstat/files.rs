//! Requests as a picture and as a HAR document.

use std::path::Path;

use crate::exchange::Told;
use crate::options::Options;
use speeddial::trace::comparison_svg;
use speeddial_inspect::Har;

/// Writes the files that the options ask for.
///
/// # Errors
/// A file cannot be written; the text says which.
pub(crate) fn write(options: &Options, told: &[Told]) -> Result<(), String> {
    if let Some(file) = &options.svg {
        write_file(file, picture(told))?;
    }
    if let Some(file) = &options.har {
        write_file(file, document(told).to_json())?;
    }
    Ok(())
}

fn write_file(file: &Path, text: String) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("write {}: {error}", file.display()))
}

fn picture(told: &[Told]) -> String {
    let calls: Vec<_> = told.iter().filter_map(|told| Some((told.name(), told.timings.as_ref()?))).collect();
    match &calls[..] {
        [(_, only)] => only.to_svg(),
        calls => comparison_svg(calls.iter().map(|(name, timings)| (name.as_str(), *timings))),
    }
}

fn document(told: &[Told]) -> Har {
    let har = Har::last(told.len());
    told.iter().filter_map(Told::har_entry).for_each(|entry| har.add(entry));
    har
}
