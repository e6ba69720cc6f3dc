"""The published modules that Orrery is tested with: versions, requirements, and
known results. They are downloaded when the tests run, and are not part of this repository.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Module:
    """A published module."""

    name: str
    version: str
    # The minimum number of its own tests that must pass.
    tests_min: int = 0
    # The reason why it cannot be installed or imported at all.
    impossible: str | None = None
    # True if its own tests are run.
    has_tests: bool = True
    # Further packages that its own tests import.
    test_requirements: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        return "inmanta-module-" + self.name.replace("_", "-")


@dataclasses.dataclass(frozen=True)
class Group:
    """Modules that are installed into one virtualenv."""

    name: str
    python: str
    modules: tuple[Module, ...]
    # Requirements in addition to the modules themselves.
    requirements: tuple[str, ...] = ()
    # One of its modules has its own licence, which must be accepted before the installation.
    needs_licence: bool = False


# The current generation: std 6 and later.
NOW = Group(
    "std 8",
    "3.13",
    (
        Module("std", "8.7.5", tests_min=125),
        Module("mitogen", "0.2.5"),
        Module("exec", "2.1.1", tests_min=9),
        Module("fs", "1.2.0", tests_min=17),
        Module("apt", "1.1.0"),
        Module("yum", "2.1.1"),
        Module("ssh", "1.0.5"),
        Module("user", "0.1.23"),
        Module("ip", "2.0.3"),
        Module("net", "1.1.3"),
        Module("web", "0.3.20"),
        Module("platform", "1.1.15"),
        Module("yaml", "1.0.0"),
        Module("rest", "1.0.1"),
        Module("graph", "1.0.1"),
        Module("dummy_module", "2.1.0"),
        Module("aws", "4.0.6"),
        Module("openstack", "6.1.2"),
        Module("vyos", "4.0.0"),
        Module("kubernetes", "0.0.5"),
        Module("ubuntu", "0.4.21"),
        Module("ansible", "0.2.1"),
    ),
)

# Modules that need `config`, which has its own licence.
WITH_LICENCE = Group(
    "std 8 with config",
    "3.13",
    (
        # Only a dependency of others; not tested.
        Module("config", "0.8.0", has_tests=False),
        Module("files", "2.11.1"),
        Module("sops", "0.3.2"),
        Module("git_ops", "0.7.2"),
        Module("podman", "1.13.4"),
        Module("netbird", "0.2.0"),
    ),
    requirements=("inmanta-module-std==8.7.5",),
    needs_licence=True,
)

# The previous generation: std up to 5.
BEFORE = Group(
    "std 5",
    "3.12",
    (
        Module("std", "5.2.8"),
        Module("cron", "1.0.13"),
        Module("apache", "0.5.8"),
        Module("mysql", "0.6.15"),
        Module("redhat", "1.0.10"),
        Module("php", "0.3.7"),
        Module("drupal", "0.7.9"),
        Module("terraform", "1.3.14"),
        Module("postgresql", "1.0.12", impossible="needs inmanta-module-systemd, which is not published"),
    ),
)

# Its library needs `distutils`, which Python 3.12 no longer has.
BEFORE_3_12 = Group("std 5 on Python 3.11", "3.11", (Module("docker", "0.4.8"),), ("inmanta-module-std==5.2.8",))

GROUPS = (NOW, BEFORE, BEFORE_3_12, WITH_LICENCE)

# Quick to install and most significant: handlers on this machine, plugins, templates.
QUICK = ("std", "mitogen", "exec", "fs", "ip", "net", "yaml")
QUICK_SUITES = ("std", "exec", "fs")
