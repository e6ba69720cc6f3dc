//! The compiler terminates for every main file with a model or an error, within its limits. Models
//! are assembled from compatible pieces, so that many of them get far.

use orrery_compiler::files::Memory;
use orrery_compiler::project::{CompileLimits, Options};
use proptest::prelude::*;

fn answers(text: &[u8]) {
    let mut files = Memory::default();
    files.add("/p/project.yml", "name: p\nmodulepath: libs\n");
    files.add("/p/main.cf", text);
    let mut options = Options::new("/p");
    options.limits =
        CompileLimits { instances: 500, creation_depth: 50, ..CompileLimits::default() };
    let compiled = orrery_compiler::compile(&files, &options);
    if let Err(error) = &compiled.outcome {
        assert!(!error.class.is_empty());
        let _ = error.message(&|loc| compiled.sources.location(loc));
    }
}

const PIECES: &[&str] = &[
    "entity A:\n  string n = \"x\"\n  int i = 0\nend\n",
    "entity B extends A:\n  string[] l = []\n  dict d = {}\nend\n",
    "implement A using std::none\n",
    "implement B using parents\n",
    "implement A using i when std::count(self.bs) > 0\n",
    "implementation i for A:\n  self.bs += B(n=\"q\", i=i + 1)\nend\n",
    "A.bs [0:] -- B.a [0:1]\n",
    "A.o [1] -- A\n",
    "index A(n)\n",
    "typedef t as int matching self > 0 and self < 10\n",
    "a = A()\n",
    "a = A(n=\"y\", o=a, bs=[B(), B(n=\"z\")])\n",
    "b = B(**{\"n\": \"k\", \"i\": 3})\n",
    "x = a.bs is defined ? std::count(a.bs) : 0\n",
    "y = [z.n for z in a.bs if z.i > 0]\n",
    "u = std::get_env(\"NOPE\")\n",
    "for q in a.bs:\n  std::print(f\"{q.n:>5} {q.i:03d}\")\n  a.bs += B(i=q.i)\nend\n",
    "if x > 0 and not (u == 1):\n  a.o = b\nelse:\n  c = A[n=\"y\"]\nend\n",
    "std::print(\"{{a.n}} {{x}}\")\n",
    "e = a.bs[n=\"z\"]\n",
    "import std::testing\n",
    "m = 2 ** 70 % 7 - 1.5 / 0\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_models_are_answered(chosen in prop::collection::vec(0..PIECES.len(), 0..14)) {
        let text: String = chosen.iter().map(|&piece| PIECES[piece]).collect();
        answers(text.as_bytes());
    }

    #[test]
    fn damaged_models_are_answered(
        chosen in prop::collection::vec(0..PIECES.len(), 1..8),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let text: String = chosen.iter().map(|&piece| PIECES[piece]).collect();
        let mut bytes = text.into_bytes();
        for (at, byte) in cuts {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        answers(&bytes);
    }

    #[test]
    fn arbitrary_text_is_answered(text in "\\PC{0,120}") {
        answers(text.as_bytes());
    }
}
