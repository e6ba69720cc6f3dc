//! The targets of a machine with real files and commands. The same tests run on each.

use std::sync::{Arc, OnceLock};

use orrery_handlers::target::{LocalShell, ShellTarget};
use orrery_handlers::{LocalTarget, Target};
use tempfile::TempDir;

/// This machine by system calls.
pub(crate) fn local() -> Option<LocalTarget> {
    Some(LocalTarget::default())
}

/// This machine by its shell.
pub(crate) fn shell() -> Option<ShellTarget> {
    Some(ShellTarget::new(Arc::new(LocalShell::default())))
}

/// This machine by the shell and the programs of `BusyBox`; `None` if it is not installed.
pub(crate) fn busybox() -> Option<ShellTarget> {
    static PROGRAMS: OnceLock<Option<TempDir>> = OnceLock::new();
    let program = LocalTarget::default().which("busybox", None).unwrap()?;
    let programs = PROGRAMS.get_or_init(|| {
        let directory = TempDir::new().ok()?;
        let install = ["--install", "-s"];
        let mut command = std::process::Command::new(&program);
        command.args(install).arg(directory.path()).status().ok()?.success().then_some(directory)
    });
    let path = programs.as_ref()?.path().to_str()?;
    let transport = LocalShell::new(&[&program, "sh"]).with_variable("PATH", path);
    Some(ShellTarget::new(Arc::new(transport)))
}

/// Runs functions of a module as tests on every machine.
#[macro_export]
macro_rules! on_every_machine {
    ($($test:ident),* $(,)?) => {
        $crate::on_every_machine!(@machine local: $($test),*);
        $crate::on_every_machine!(@machine shell: $($test),*);
        $crate::on_every_machine!(@machine busybox: $($test),*);
    };
    (@machine $machine:ident: $($test:ident),*) => {
        mod $machine {
            $(
                #[test]
                fn $test() {
                    if let Some(target) = $crate::machines::$machine() {
                        super::$test(&target);
                    }
                }
            )*
        }
    };
}
