//! Replaces a virtualenv atomically: the new one is built beside it and renamed, so that an
//! interruption leaves the old one or none.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Error;

/// Directory beside a virtualenv for building its successor.
pub(crate) fn aside(environment: &Path, suffix: &str) -> PathBuf {
    let name = environment.file_name().unwrap_or_default().to_string_lossy();
    environment.with_file_name(format!("{name}.orrery-{suffix}"))
}

pub(crate) fn remove(dir: &Path) -> Result<(), Error> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::System { what: format!("remove {}", dir.display()), error })
        }
        _ => Ok(()),
    }
}

/// Moves a complete virtualenv to its final path.
pub(crate) fn move_into_place(new: &Path, place: &Path) -> Result<(), Error> {
    rewrite_paths(new, place)?;
    let old = aside(place, "old");
    remove(&old)?;
    let moving = |from: &Path, to: &Path| {
        let what = format!("move {} to {}", from.display(), to.display());
        fs::rename(from, to).map_err(Error::system(what))
    };
    let had_one = place.exists();
    if had_one {
        moving(place, &old)?;
    }
    if let Err(error) = moving(new, place) {
        if had_one {
            moving(&old, place)?;
        }
        return Err(error);
    }
    remove(&old)
}

/// Rewrites the absolute paths of a virtualenv: in script shebangs, activation scripts and
/// pyvenv.cfg.
fn rewrite_paths(environment: &Path, place: &Path) -> Result<(), Error> {
    let (from, to) = (environment.display().to_string(), place.display().to_string());
    let programs = fs::read_dir(environment.join("bin"))
        .map_err(Error::system(format!("read {}", environment.display())))?;
    let programs = programs.flatten().map(|entry| entry.path());
    for path in programs.chain([environment.join("pyvenv.cfg")]) {
        let is_file = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
        if !is_file {
            continue;
        }
        // Binaries contain no paths.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        if text.contains(&from) {
            let failed = Error::system(format!("write {}", path.display()));
            fs::write(&path, text.replace(&from, &to)).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_environment_replaces_the_old_one_and_knows_its_place() {
        let scratch = tempfile::tempdir().unwrap();
        let place = scratch.path().join(".venv");
        let new = aside(&place, "new");
        fs::create_dir_all(new.join("bin")).unwrap();
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("old"), "").unwrap();
        fs::write(new.join("bin/tool"), format!("#!{}/bin/python\n", new.display())).unwrap();
        fs::write(new.join("bin/binary"), b"\xff\xfe").unwrap();
        std::os::unix::fs::symlink("/nowhere", new.join("bin/python")).unwrap();
        fs::write(new.join("pyvenv.cfg"), format!("command = x {}\n", new.display())).unwrap();
        move_into_place(&new, &place).unwrap();
        assert!(!place.join("old").exists() && !new.exists());
        let tool = fs::read_to_string(place.join("bin/tool")).unwrap();
        assert_eq!(tool, format!("#!{}/bin/python\n", place.display()));
        let description = fs::read_to_string(place.join("pyvenv.cfg")).unwrap();
        assert_eq!(description, format!("command = x {}\n", place.display()));
        assert_eq!(fs::read(place.join("bin/binary")).unwrap(), b"\xff\xfe");
        let left: Vec<_> = fs::read_dir(scratch.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
    }
}
