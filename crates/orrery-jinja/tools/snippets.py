"""Snippets of templates that record.py asks Jinja2 about."""

PRELUDE = (
    "{% set l = [3, 1, 2] %}{% set ls = ['b', 'a', 'C'] %}{% set le = [] %}"
    "{% set d = {'k': 1, 'b': [1, none], 'm': {'z': 2}} %}"
    "{% set ld = [{'a': 2, 'g': 'x'}, {'a': 1, 'g': 'y'}, {'a': 3, 'g': 'x'}] %}"
    "{% set s = 'abc def' %}{% set t = true %}{% set f = 1.5 %}{% set n = none %}"
    "{% set i = 42 %}{% set h = '<a href=\"x\">\\'&' %}{% set w = 'The quick brown fox jumps' %}"
    "{% set ml = 'one\\ntwo\\n\\nthree\\n' %}"
)

# Expressions, printed alone.
EXPRESSIONS = r"""
1 + 2
1 - 5
7 / 2
7 // 2
-7 // 2
-7 % 3
7 % -3
2 ** 10
2 ** -1
2 ** 0.5
10 ** 20
1e20
1e16
1.0
1.5e-7
0.1 + 0.2
1_000
0x1F
0b101
0o17
1 / 0
1 % 0
1.0 // 0
'a' + 'b'
'a' + 1
1 + 'a'
'a' * 3
3 * 'ab'
'a' * 'b'
[1] * 2
[1] + [2]
[1] + (2,)
(1, 2) + (3,)
'%s-%s' % (1, 'b')
'%s' % 5
'%d items' % 3.7
'%05.2f|%-5s|%5s|%x|%o|%e' % (3.14159, 'a', 'b', 255, 8, 12345.678)
'%(a)s' % {'a': 1}
'%s %s' % (1,)
'%s' % [1, 2]
'%r' % 'a'
'100%%' % ()
'a' ~ 1 ~ none ~ 1.5 ~ true
not true
not le
t and n
n or 'x'
n and 1
1 < 2 < 3
1 < 2 > 5
1 == 1.0
1 == true
'a' == 'a'
'a' < 'b'
'a' < 1
[1, 2] < [1, 3]
(1, 2) == [1, 2]
1 in l
9 not in l
'b' in s
1 in s
'k' in d
1 in 5
none == none
l == [3, 1, 2]
d == {'k': 1, 'b': [1, none], 'm': {'z': 2}}
-true
+1.5
-'a'
'x' if t else 'y'
'x' if n
('x' if n) is defined
l[0]
l[-1]
l[10]
l[1:]
l[::-1]
l[:2]
l[5:]
l['x']
s[0]
s[-3:]
s[::2]
s[100]
d.k
d['k']
d.nope
d['nope']
d.items
d.m.z
d.nope.x
nope
nope.x
nope()
nope | default('x')
nope is defined
nope + 1
nope == 1
l.nope
l.nope()
i.nope
n.nope
s.nope
(1, 2)
(1,)
()
[1, 'a', none, true, 1.5, [2]]
{'a': 1, 2: 'b', none: 3}
{1: 'a', 1.0: 'b', true: 'c'}
{'a': 1, 'a': 2}
{[1]: 2}
'it\'s'
"dou\"ble"
'uni\u00e9'
'tab\tnew\nline'
['it\'s', "a\"b", 'tab\t', 'é', '\x00']
true
True
none
None
false
range(3)
range(3) | list
range(1, 10, 3) | list
range(5, 0, -2) | list
range(0)
range('a')
range(1, 2, 0)
range()
dict(a=1, b=2)
dict({'a': 1}, b=2)
namespace(a=1).a
joiner()
cycler('a', 'b').next()
cycler()
s.upper()
s.lower()
s.title()
s.capitalize()
s.swapcase()
s.center(11, '*')
s.ljust(10, '.')
s.rjust(10)
s.zfill(10)
'-5'.zfill(4)
s.split()
s.split('b')
s.split(' ', 1)
' a  b '.split()
'a,b,c'.rsplit(',', 1)
s.split('')
ml.splitlines()
ml.splitlines(true)
s.partition(' ')
s.rpartition('x')
s.replace('a', 'z')
'aaa'.replace('a', 'b', 2)
s.startswith('abc')
s.startswith(('x', 'a'))
s.endswith('def')
s.find('d')
s.find('z')
s.index('z')
s.rfind('d')
s.count('a')
'  x '.strip()
'xxaxx'.strip('x')
'xxaxx'.lstrip('x')
'xxaxx'.rstrip('x')
s.join(['1', '2'])
','.join([1])
s.isdigit()
'12'.isdigit()
'ab'.isalpha()
'a1'.isalnum()
' '.isspace()
'AB'.isupper()
'ab'.islower()
'ß'.upper()
'ǆ'.title()
'İ'.lower()
'ΑΣ'.lower()
s.removeprefix('abc')
s.removesuffix('def')
s.expandtabs()
'{} {}'.format(1, 'b')
'{0} {1} {0}'.format('a', 'b')
'{a:>5}|{b:05.1f}'.format(a='x', b=3.14159)
'{}'.format()
'{x}'.format()
'{:,}'.format(1234567)
'{:x}'.format(255)
'{!r}'.format('a')
l.index(1)
l.index(9)
l.count(1)
l.copy()
d.get('k')
d.get('nope')
d.get('nope', 5)
d.keys() | list
d.values() | list
d.items() | list
d.keys()
d.items()
d.copy() == d
l | abs
-5 | abs
-1.5 | abs
'a' | abs
[1, 2, 3, 4, 5] | batch(2) | list
[1, 2, 3] | batch(2, '-') | list
l | batch(2)
s | capitalize
s | center(11)
s | center
nope | d('x')
'' | default('x')
'' | default('x', true)
n | default('x')
0 | default(5, boolean=true)
d | dictsort
{'b': 1, 'A': 2} | dictsort
{'b': 1, 'A': 2} | dictsort(true)
{'b': 1, 'a': 2} | dictsort(by='value')
{'b': 1, 'a': 2} | dictsort(false, 'key', true)
h | escape
h | e
h | e | e
h | forceescape
'a/b' | e
1000 | filesizeformat
1 | filesizeformat
123456789 | filesizeformat
123456789 | filesizeformat(true)
'1024' | filesizeformat
l | first
le | first
s | first
5 | first
'3.7' | float
'x' | float
'x' | float(2.5)
'1e3' | float
'%s!' | format('x')
'%(a)s' | format(a=1)
'%s %s' | format(1)
ld | groupby('g') | list
ld | groupby('g')
ld | groupby('a') | map(attribute='grouper') | list
ml | indent
ml | indent(2)
ml | indent(2, true)
ml | indent(2, true, true)
ml | indent('> ')
'a\n' | indent
5 | indent
'42' | int
'4.9' | int
'x' | int
'x' | int(7)
'1f' | int(0, 16)
'0x1f' | int(0, 16)
'0b11' | int(0, 2)
1.9 | int
n | int
[1] | int
' 12 ' | int
d | items | list
nope | items | list
l | join
l | join(', ')
ld | join('-', attribute='a')
5 | join
l | last
le | last
s | last
l | length
s | length
d | length
5 | length
l | count
s | list
5 | list
d | list
'ABC' | lower
5 | lower
l | map('string') | list
ld | map(attribute='a') | list
ld | map(attribute='zz', default='-') | list
l | map('nope') | list
l | map() | list
ls | map('upper') | join(',')
['a,b'] | map('replace', ',', '.') | list
l | max
ls | max
ls | max(case_sensitive=true)
ld | max(attribute='a')
le | max
l | min
['b', 2] | min
l | pprint
[1] | random
l | reject('odd') | list
[0, 1, '', 'a'] | reject | list
ld | rejectattr('a', 'eq', 1) | list
s | replace('a', 'z')
'aaa' | replace('a', 'b', 1)
5 | replace('5', 'x')
l | reverse | list
s | reverse
l | reverse
5 | reverse
2.5 | round
3.5 | round
2.567 | round(2)
2.1 | round(method='ceil')
2.9 | round(0, 'floor')
25 | round(-1)
2.567 | round(1, 'ceil')
2 | round
2.5 | round(method='x')
h | safe
l | select('odd') | list
[0, 1, '', 'a'] | select | list
l | select('gt', 1) | list
l | select('nope') | list
ld | selectattr('g', 'equalto', 'x') | map(attribute='a') | list
ld | selectattr('a') | list
[1, 2, 3, 4, 5] | slice(2) | list
[1, 2, 3] | slice(2, 'x') | list
l | sort
ls | sort
ls | sort(case_sensitive=true)
ls | sort(reverse=true)
ld | sort(attribute='a') | map(attribute='a') | list
ld | sort(attribute='g,a') | map(attribute='a') | list
['b', 2] | sort
5 | string
l | string
h | striptags
l | sum
ld | sum(attribute='a')
l | sum(start=10)
['a'] | sum
'the quick-brown (fox) o\'neil' | title
'ǆ' | title
d | tojson
'</script>' | tojson
[1, 'é', none, true, 1.5] | tojson
nope | tojson
d | tojson(indent=2)
'  x ' | trim
'xxaxx' | trim('x')
w | truncate(9)
w | truncate(9, true)
w | truncate(10, false, '!')
w | truncate(12, true, '..', 0)
w | truncate(2)
w | truncate(23)
'foo bar baz qux' | truncate(11)
'foo bar baz qux' | truncate(11, False, '...', 0)
[1, 1, 2, 1.0, '1'] | unique | list
['a', 'A'] | unique | list
['a', 'A'] | unique(true) | list
ld | unique(attribute='g') | map(attribute='a') | list
'ß' | upper
'http://x.y' | urlize
'a b/c?d=é' | urlencode
{'a b': 'c/d', 'e': 1} | urlencode
[('a', 1), ('b', 'x y')] | urlencode
5 | urlencode
w | wordcount
'a-b c_d, é' | wordcount
w | wordwrap(10)
w | wordwrap(4)
w | wordwrap(4, false)
w | wordwrap(10, true, '|')
'a\n\nb c' | wordwrap(3)
'well-known words' | wordwrap(6)
{'class': 'my', 'id': none, 'x': h} | xmlattr
{'a b': 1} | xmlattr
{} | xmlattr
{'class': 'my'} | xmlattr(false)
d | attr('k')
d | attr('items')
s | attr('upper')
l | nope
l is nope
i is even
i is odd
'a' is even
i is divisibleby 7
i is divisibleby(5)
n is none
n is not none
i is number
true is number
t is boolean
t is true
1 is true
i is integer
true is integer
f is float
s is string
l is sequence
l is iterable
i is iterable
s is sequence
d is mapping
l is mapping
range is callable
s is callable
i is eq 42
i is gt 3
i is lt(3)
i is ne 5
i is in [1, 42]
i is sameas 42
none is sameas none
'abc' is lower
'ABC' is upper
nope is undefined
h is escaped
(h | e) is escaped
'upper' is filter
'nope' is filter
'odd' is test
i is ge 42 and i is le 42
l | length > 2
1 + 2 * 3 ** 2
not 1 == 2
-2 ** 2
2 ** 3 ** 2
'a' ~ 'b' * 2
1 if 0 else 2 if 0 else 3
(1 + 2) * 3
[1, 2,]
{'a': 1,}
1 if
1 +
'a' 'b'
a.b.
[1, 2
{'a' 1}
'abc
l[1:2:0]
l[1.5]
l['0']
d.items() | first
10000000000000000000000
10000000000000000000000 * 10
2 ** 200
1e400
-1e400
1e400 - 1e400
1e15
123456789012345.0
1e22
0.00001
0.0001
100000000000000000.0
5e-324
1.7976931348623157e308
3.0 * 2
7.0 // 2
-7.5 // 2
7.5 % 2
'é' | length
'é' | upper
'日本' | center(6)
'a' | list | string
true + true
(1, 'a') | list
{'a': {'b': [1, {'c': none}]}}
{'a': {'b': [1, {'c': none}]}}.a.b[1].c
"a" "b" 'c'
l | first | string | length
ld | map('tojson') | list
ld | map(attribute='g') | unique | sort | join('/')
[[3, 1], [2]] | map('sort') | list
[[3, 1], [2]] | sum(start=[])
'a' in ['a', 'b'] and 'z' not in 'abc'
lipsum
self
loop
caller
"""

# Whole templates; further items are the paths and texts of other templates.
TEMPLATES = [
    "{% for x in l %}{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for x in le %}a{% else %}empty{% endfor %}",
    "{% for x in l if x > 1 %}{{ loop.index }}:{{ x }} {% endfor %}",
    "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a }}{{ b }} {% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}",
    "{% for a, b in [1] %}{{ a }}{% endfor %}",
    "{% for (a, (b, c)) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in l %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.length }} {% endfor %}",
    "{% for x in l %}{{ loop.previtem | default('-') }}{{ loop.nextitem | default('-') }} {% endfor %}",
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in l %}{% for y in l %}{{ loop.depth }}{{ loop.index }}{% endfor %}{% endfor %}",
    "{% for x in [{'v': 1, 'c': [{'v': 2, 'c': []}]}] recursive %}{{ x.v }}[{{ loop(x.c) }}]{{ loop.depth }}{% endfor %}",
    "{% for x in l %}{{ loop(x) }}{% endfor %}",
    "{% for x in 5 %}{% endfor %}",
    "{% for x in nope %}{% endfor %}",
    "{% for x in l %}{% set y = x %}{% endfor %}{{ y }}",
    "{% set y = 0 %}{% for x in l %}{% set y = x %}{% endfor %}{{ y }}",
    "{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}",
    "{% set ns = namespace() %}{% set ns.x = 1 %}{{ ns }}",
    "{% set d.x = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a, b = 1 %}",
    "{% set x %}a{{ i }}{% endset %}{{ x }}",
    "{% set x | upper %}a{{ s }}{% endset %}{{ x }}",
    "{% if n %}a{% elif t %}b{% else %}c{% endif %}",
    "{% if nope %}a{% endif %}",
    "{% if nope is defined %}a{% else %}b{% endif %}",
    "{% if 0 %}{{ x | nope }}{% endif %}ok",
    "{% if t %}{{ s | nope }}{% endif %}",
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=5, a=4) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m() %}{{ varargs | join('+') }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a, b=a) %}{{ b }}{% endmacro %}{{ m(7) }}",
    "{% macro m(a) %}{{ caller() }}{% endmacro %}{% call m(1) %}x{{ s }}{% endcall %}",
    "{% macro m() %}{{ caller(5) }}{% endmacro %}{% call(v) m() %}<{{ v }}>{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m(a, b=1) %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.caller }}",
    "{% macro m(n) %}{{ n }}{% if n > 0 %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(3) }}",
    "{% macro m() %}{{ y }}{% endmacro %}{% set y = 1 %}{{ m() }}",
    "{{ m }}{% macro m() %}{% endmacro %}",
    "{% filter upper %}a{{ s }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}aXa{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}",
    "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}",
    "{% raw %}{{ x }}{% y %}{% endraw %}",
    "a{# comment #}b{#- c -#} d",
    "a {%- if t -%} b {%- endif -%} c",
    "a\n{% if t %}\nb\n{% endif %}\nc\n",
    "a\n  {%- if t %}\n  b\n  {%- endif %}\nc",
    "{{- i -}} x",
    "{%+ if t %}x{% endif %}",
    "x\n\n",
    "x\r\ny\r",
    "{{ '{{' }} {{ '%}' }}",
    "{% for x in l -%}\n  {{ x }}\n{%- endfor %}",
    "{% autoescape false %}{{ h }}{% endautoescape %}",
    "{% autoescape true %}{{ h }}{% endautoescape %}",
    "{% do l.append(1) %}",
    "{{ l.append(4) }}{{ l }}",
    "{{ l.pop() }}{{ l }}{{ l.insert(0, 9) }}{{ l }}{{ l.remove(1) }}{{ l }}",
    "{{ l.sort() }}{{ l }}{{ l.reverse() }}{{ l }}{{ l.extend([5]) }}{{ l }}{{ l.clear() }}{{ l }}",
    "{{ d.update({'x': 1}) }}{{ d.x }}{{ d.pop('x') }}{{ d.setdefault('y', 2) }}{{ d }}",
    "{{ d.pop('nope') }}",
    "{{ l.remove(99) }}",
    "{% set a = [] %}{% set b = a %}{{ b.append(1) }}{{ a }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}",
    "{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}",
    "{% set g = ld | map(attribute='a') %}{{ g | list }}{{ g | list }}",
    "{% set g = l | select %}{{ g }}{% if g %}y{% endif %}",
    "{{ l | map('upper') }}",
    "{% set r = range(3) %}{{ r }}{{ r[1] }}{{ r | length }}{{ 2 in r }}",
    "{{ [1, 2] | map('string') | first is string }}",
    "{% block a %}x{% endblock %}{{ self.a() }}",
    "{% block a %}{{ super() }}{% endblock %}",
    "{% block a %}{% endblock %}{% block a %}{% endblock %}",
    "{% set x = 1 %}{% block a %}{{ x }}{% endblock %}",
    "{% for x in l %}{% block a %}{{ x }}{% endblock %}{% endfor %}",
    "{% for x in l %}{% block a scoped %}{{ x }}{% endblock %}{% endfor %}",
    "{% block a required %}{% endblock %}",
    "{% block a %}x{% endblock b %}",
    ["{% extends '/base' %}{% block a %}<{{ super() }}>{% endblock %}ignored", "/base", "[{% block a %}x{% endblock %}]"],
    ["{% extends '/base' %}{% set v = 5 %}{% block a %}{{ v }}{% endblock %}", "/base", "[{% block a %}x{% endblock %}]"],
    ["{% extends '/mid' %}{% block a %}3{{ super() }}{% endblock %}", "/mid", "{% extends '/base' %}{% block a %}2{{ super() }}{% endblock %}", "/base", "{% block a %}1{% endblock %}"],
    ["{% extends '/nope' %}"],
    ["{% include '/p' %}", "/p", "p{{ i }}"],
    ["{% for x in l %}{% include '/p' %}{% endfor %}", "/p", "{{ x }},"],
    ["{% include '/p' without context %}", "/p", "{{ 1 + 1 }}"],
    ["{% include '/nope' %}"],
    ["a{% include '/nope' ignore missing %}b"],
    ["{% include ['/nope', '/p'] %}", "/p", "found"],
    ["{% include ['/nope', '/no'] %}"],
    ["{% import '/m' as m %}{{ m.f(2) }}{{ m.v }}", "/m", "{% macro f(x) %}{{ x * 2 }}{% endmacro %}{% set v = 7 %}"],
    ["{% from '/m' import f, v as w %}{{ f(2) }}{{ w }}", "/m", "{% macro f(x) %}{{ x * 2 }}{% endmacro %}{% set v = 7 %}"],
    ["{% from '/m' import zz %}{{ zz }}", "/m", ""],
    ["{% from '/m' import zz %}{{ zz is defined }}", "/m", ""],
    ["{% from '/m' import f with context %}{{ f() }}", "/m", "{% macro f() %}{{ i }}{% endmacro %}"],
    ["{% from '/m' import _x %}", "/m", ""],
    ["{% import '/m' as m %}{{ m }}", "/m", "text"],
    "{% extends '/a' %}{% extends '/b' %}",
    "{% endfor %}",
    "{% for x in l %}",
    "{% for x in l %}{% endif %}",
    "{% if %}{% endif %}",
    "{% nope %}",
    "{% set %}",
    "{% set 1 = 2 %}",
    "{% set true = 2 %}",
    "{% macro %}{% endmacro %}",
    "{% for x %}{% endfor %}",
    "{{ }}",
    "{{ x",
    "{% if t",
    "{# x",
    "{% raw %}x",
    "{{ 1 2 }}",
    "{{ a | }}",
    "{{ a is }}",
    "{{ 'a' is not }}",
    "{{ f(a=1, 2) }}",
    "{{ f(*l, *l) }}",
    "{{ @ }}",
    "{{ a ! b }}",
    "{{ (1 }}",
    "{{ 1) }}",
    "{{ [1) }}",
    "{{ {'a': 1] }}",
    "{{ a..b }}",
    "{{ dict(**{'a': 1}, b=2) }}{{ range(*[1, 3]) | list }}",
    "{{ dict(*[{'a': 1}]) }}",
    "line one\n{{ s }}\n\n{{ nope }}\n",
    "{{ s | upper | lower | title | replace('A', 'x') }}",
    "{{ s|upper~s|lower }}",
    "{{ 'a' if 'b' in s else 'c' }}{{ ('x', 'y')[1] }}{{ {'a': 'b'}['a'] }}",
    "{{ ld[0].a }}{{ ld[0]['g'] }}{{ ld[-1].a }}",
    "{{ (l | sort)[0] }}{{ (l | sort).index(3) }}",
    "{% for g in ld | groupby('g') %}{{ g.grouper }}:{{ g.list | map(attribute='a') | join('+') }} {% endfor %}",
    "{% for k, items in ld | groupby('g') %}{{ k }}{{ items | length }}{% endfor %}",
    "{% for row in [1, 2, 3, 4, 5] | batch(2, '-') %}{{ row | join(' ') }}\n{% endfor %}",
    "{% for c in [1, 2, 3, 4, 5] | slice(3) %}{{ c }}{% endfor %}",
    "{{ '%s' | format(h) }}{{ h | e }}{{ (h | safe) ~ '<' }}",
    "{{ ('<b>' | safe) + '<' }}",
    "{{ ('<b>' | safe) | upper }}",
    "{{ ['<b>' | safe, '<'] | join('&') }}",
    "{{ [1.0, 1e10, 1e-5, -0.0] }}",
    "{{ 'x' * 3 ~ 'y' }}{{ 1 ~ 2 }}",
    "{% set x = l | sort | reverse | list %}{{ x }}",
    "{% set x = (1, 2, 3) %}{{ x[1:] }}{{ x.count(1) }}{{ x.index(2) }}",
    "{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}",
    "{% if t %}{% set q = 1 %}{% endif %}{{ q }}",
    "{% if n %}{% set q = 1 %}{% endif %}{{ q }}",
    "{% print s %}",
    "{% print s, i %}",
    "{{ s, i }}",
    "{% for i in range(3) %}{% if loop.first %}{% continue %}{% endif %}{{ i }}{% endfor %}",
    "interface {{ s | replace(' ', '-') }}\n ip address {{ '10.0.0.%d' % i }}\n{% for x in l | sort %} rule {{ '%03d' | format(x) }}\n{% endfor %}!\n",
]
