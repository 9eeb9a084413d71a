"""The admission policy: what the API server itself checks of every pod that carries a pool's label.

It compares the pod with what `status.schema.admitted` of its pool says, so it holds while the operator is down, and an
engine of the former schema can still be replaced while the engines move. Everything that is checked comes from
`schema.flags` and `schema.values`, the tables that also render engines and read them back: a new flag is checked here
without a change of this module.

CEL of Kubernetes 1.30: optional fields, but no bindings (hence lists of one element that are mapped) and no index in
comprehensions (hence `indexes`). Sources: kubernetes.io, "Validating Admission Policy"; k8s.io/apiserver 0.36,
`pkg/cel/environment/base.go` (which library since when) and `plugin/policy/validating` (order of evaluation).
"""

from typing import Any, Final

from kvcachepool import constants, names
from kvcachepool.schema.flags import (
    CONFIG_FLAG,
    DISABLED,
    DOTTED,
    ENABLED,
    ENV_DEFAULTS,
    GLUED,
    HIDDEN,
    KNOWN_FLAGS,
    OFF,
    OTHER_FLAGS,
    REFERENCE,
    REFUSED_ENV,
    REFUSED_FLAGS,
    SCHEMA_ENV,
    SCHEMA_FLAGS,
    SWITCH_LIKE,
    SWITCHES,
    WHOLE_FLAGS,
    Kind,
)
from kvcachepool.schema.member import (
    API_SERVER,
    ENGINE_IMAGE,
    ENGINE_WORDS,
    NO_CONNECTOR,
    PREFIXED_CONNECTORS,
    PROGRAM,
    SERVE,
    SHELL,
    UNSEEN_MODEL,
)
from kvcachepool.schema.values import ALIASES, UPPER_CASE

Json = dict[str, Any]

MOST_WORDS: Final = 256
"""Words of a command line that are looked at; a pod with more is refused."""


def _cel(value: Any) -> str:
    """A Python value as a CEL literal."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_cel(key)}: {_cel(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_cel(item) for item in value) + "]"
    assert isinstance(value, int)
    return str(value)


_SWITCHES: Final = {
    name: ENABLED if name in flag.opposites else DISABLED
    for flag in SCHEMA_FLAGS
    if flag.kind is Kind.SWITCH
    for name in flag.names
}
_LISTS: Final = [name for flag in SCHEMA_FLAGS if flag.kind is Kind.LIST for name in flag.names]
_JOINING: Final = (constants.LABEL_POOL, constants.LABEL_SCHEMA, constants.LABEL_COMPONENT)
_REVISION: Final = "modelRevision"
_POOL: Final = "params.metadata.name"
_GROUP: Final = "leaderworkerset.sigs.k8s.io/name"
_ENGINES: Final = f"-{constants.ENGINE}-[0-9a-f]{{12}}$"
_REPLICA_SET: Final = f"-({constants.ENGINE}-[0-9a-f]{{12}}|{constants.STORE}|{constants.MASTER})-[a-z0-9]+$"


def _label(name: str, obj: str = "object") -> str:
    return f"{obj}.metadata.?labels[?{_cel(name)}].orValue('')"


def _flag_rows() -> list[dict[str, list[str]]]:
    """One row a flag; lists throughout, since a CEL map has values of one type."""
    return [
        {
            "field": [flag.field],
            "names": list(flag.names),
            "default": ["" if flag.default is None else str(flag.default)],
            "kind": [flag.kind.value],
        }
        for flag in SCHEMA_FLAGS
    ]


def _env_rows() -> list[dict[str, list[str]]]:
    return [
        {"field": [field], "names": [name], "default": [ENV_DEFAULTS.get(field, "")], "kind": ["env"]}
        for name, field in SCHEMA_ENV.items()
    ]


MATCH_CONDITIONS: Final = (
    ("labelled", f"{_label(constants.LABEL_POOL)} != ''"),
    ("not-leaving", "!has(object.metadata.deletionTimestamp)"),
    (
        "joins-or-changes",
        "request.operation == 'CREATE' || object.spec != oldObject.spec || "
        + " || ".join(f"{_label(name)} != {_label(name, 'oldObject')}" for name in _JOINING),
    ),
    ("names-this-pool", f"{_label(constants.LABEL_POOL)} in [params.metadata.name, params.?status.?label.orValue('')]"),
)
"""In this order; the first that does not hold lets the pod pass."""

_WORDS: Final = "(c.?command.orValue([]) + c.?args.orValue([]))"
_GLUED: Final = " || ".join(
    f"w.startsWith({_cel(name)}) && !w.startsWith({_cel(name + '=')}) && w != {_cel(name)}" for name in GLUED
)
_CONFIG: Final = f"e.given.filter(g, g[0] == {_cel(CONFIG_FLAG)})"
_CONNECTOR: Final = "variables.want[?'connector'].orValue('')"

_ROW_PROBLEMS: Final = """
    .map(t, (t.found.size() > 0 ? t.found : t.row['default'])
      .map(v, t.row.kind[0] == 'number' && v.matches('^[0-9]{1,9}$') ? string(int(v)) : v)
      .map(v, t.row.field[0] in variables.upper ? v.upperAscii() : v)
      .map(v, variables.aliases[?t.row.field[0]][?v].orValue(v))
      .filter(v, t.row.kind[0] == 'list'
        ? !sets.equivalent(v.split(','), t.want.split(',')) : v != t.want)
      .map(v, '%s (%s) is %s, the pool has %s'.format(
        [string(t.row.field[0]), string(t.row.names[0]), v == '' ? 'unset' : string(v),
         t.want == '' ? 'unset' : string(t.want)])))
    .filter(l, l.size() > 0).map(l, l[0])"""
"""Of rows with what was found: a sentence for each that differs."""

VARIABLES: Final = (
    ("component", _label(constants.LABEL_COMPONENT)),
    ("digest", _label(constants.LABEL_SCHEMA)),
    # what names of the pool's children begin with, where names.stem does not shorten it
    (
        "stem",
        f"{_POOL}.size() <= {names.MAX_STEM} && {_POOL}.matches({_cel(names.LABEL.pattern)})\n"
        f"  && !{_POOL}.matches({_cel(names.HASHED.pattern)}) ? {_POOL} + '-' : ''",
    ),
    ("serves", f"!(variables.component in {_cel([constants.STORE, constants.MASTER])})"),
    ("admitted", "params.?status.?schema.?admitted.orValue([])"),
    ("chosen", "variables.admitted.filter(s, s.digest == variables.digest)"),
    ("want", "variables.chosen.size() > 0 ? variables.chosen[0].fields : {}"),
    ("named", f"object.metadata.?annotations[?{_cel(constants.ANNOTATION_CONTAINER)}].orValue('')"),
    (
        "engines",
        f"""
variables.serves && variables.named != ''
  ? object.spec.containers.filter(c, c.name == variables.named)
  : variables.serves && object.spec.containers.size() == 1
  ? object.spec.containers
  : object.spec.containers.filter(c,
      {_WORDS}.exists(w, {_cel(ENGINE_WORDS)}.exists(part, w.contains(part)))
      || variables.serves && c.?image.orValue('').matches({_cel(ENGINE_IMAGE)}))""",
    ),
    ("words", f"variables.engines.map(c, {_WORDS})"),
    ("aliases", _cel({field: dict(names) for field, names in ALIASES.items()})),
    ("upper", _cel(sorted(UPPER_CASE))),
    ("rows", _cel(_flag_rows())),
    ("environment", _cel(_env_rows())),
    ("refusals", _cel({**REFUSED_FLAGS, **REFUSED_ENV})),
    ("full", _cel(KNOWN_FLAGS)),
    ("whole", _cel(WHOLE_FLAGS)),
    ("indexes", f"variables.words.all(w, w.size() <= 40) ? {_cel(list(range(40)))} : {_cel(list(range(MOST_WORDS)))}"),
    (
        # of each engine, word by word: the name of the flag that it is, else nothing; and where its own arguments begin
        "lines",
        f"""
variables.engines.map(c, {{'c': dyn(c), 'words': dyn({_WORDS})}}).map(e, {{
  'name': dyn(e.c.name), 'env': dyn(e.c.?env.orValue([])), 'words': dyn(e.words),
  'at': dyn(variables.indexes.filter(i, i < e.words.size())),
  'begin': dyn(variables.indexes.filter(i, i < e.words.size()
      && !(!has(e.c.command) && e.words[0].startsWith('-'))
      && (e.words[i] == '{SERVE}' && (i == 0
          || (has(e.c.command) ? !e.words[i - 1].startsWith('-') : e.words[i - 1].matches({_cel(PROGRAM)})))
        || e.words[i].matches({_cel(API_SERVER)}))).map(i, i + 1)
    + (has(e.c.command) ? [] : [0])),
  'flags': dyn(e.words.map(w,
    w.matches('^--.') ? '--' + w.substring(2).split('=', 2)[0].replace('_', '-')
    : {_GLUED} ? w.substring(0, 2)
    : w.matches('^-[^-0-9]') ? w.split('=', 2)[0] : ''))}})""",
    ),
    (
        # of each engine: [flag, value] of each word that is a flag, words that may be a flag unseen, the model it names
        "parsed",
        f"""
variables.lines.map(e, {{
  'name': dyn(e.name), 'env': dyn(e.env), 'words': dyn(e.words), 'begin': dyn(e.begin),
  'given': dyn(e.at.filter(i, e.flags[i] != '').map(i, [e.flags[i],
    e.flags[i] in {_cel(_SWITCHES)} ? {_cel(_SWITCHES)}[e.flags[i]]
    : e.words[i].contains('=') ? e.words[i].split('=', 2)[1]
    : e.flags[i] in {_cel(GLUED)} && e.words[i] != e.flags[i] ? e.words[i].substring(2)
    : e.flags[i] in {_cel(_LISTS)}
    ? e.at.filter(j, j > i && e.flags[j] == '' && !e.at.exists(k, k > i && k < j && e.flags[k] != ''))
        .map(j, e.words[j]).join(',')
    : i + 1 < e.words.size() && e.flags[i + 1] == '' ? e.words[i + 1] : ''])),
  'hidden': dyn(e.at.filter(i, e.flags[i] != '' ? e.words[i].split('=', 2)[0].contains('{REFERENCE}')
      : e.words[i].startsWith('{REFERENCE}') && !(i > 0 && e.flags[i - 1] != '' && !e.words[i - 1].contains('=')
        && !(e.flags[i - 1] in {_cel(sorted(SWITCHES))}) && !e.flags[i - 1].matches({_cel(SWITCH_LIKE)})))
    .map(i, e.words[i].split(')', 2)[0] + ')')),
  'model': dyn(
    e.at.filter(i, e.flags[i] == '--model').map(i, e.words[i].contains('=') ? e.words[i].split('=', 2)[1]
      : i + 1 < e.words.size() ? e.words[i + 1] : '')
    + e.at.filter(i, e.flags[i] == ''
        && e.begin.size() > 0 && i >= e.begin[0] && (e.begin[0] == 0 || e.words[e.begin[0] - 1] == '{SERVE}')
        && (i == e.begin[0] || e.flags[i - 1] != ''
          && (e.words[i - 1].contains('=') || e.flags[i - 1] in {_cel(sorted(SWITCHES))}))).map(i, e.words[i]))}})""",
    ),
    (
        # of each engine: sentences about what does not fit
        "problems",
        f"""
variables.parsed.map(e,
  e.words.exists(w, w.matches({_cel(SHELL)}))
  ? ['it starts through a shell, so that its flags cannot be checked; give command and args as lists']
  : e.words.size() > {MOST_WORDS} ? ['its command line has more than {MOST_WORDS} words']
  : variables.rows
    .map(r, {{'row': dyn(r), 'found': dyn(e.given.filter(g, g[0] in r.names).map(g, g[1])),
      'want': dyn(variables.want[?r.field[0]].orValue(r['default'][0]))}})
    .filter(t, t.row.field[0] != '{_REVISION}' || t.found.size() > 0
      || e.model.exists(m, !m.matches('^[./]'))){_ROW_PROBLEMS}
  + variables.environment
    .map(r, {{'row': dyn(r), 'found': dyn(e.env.filter(v, v.name in r.names)
        .map(v, has(v.valueFrom) ? 'a reference' : v.?value.orValue(''))),
      'want': dyn(variables.want[?r.field[0]].orValue(r['default'][0]))}}){_ROW_PROBLEMS}
  + e.model.filter(m, !m.matches('^[./]') && m != variables.want[?'modelId'].orValue(''))
    .map(m, 'modelId is %s, the pool has %s'.format([string(m), string(variables.want[?'modelId'].orValue(''))]))
  + (e.begin.size() > 0 && e.model.size() == 0 ? [{_cel(UNSEEN_MODEL)}] : [])
  + e.given.map(g, [string(g[0]), g[0].split('.')[0]])
    .filter(g, g[1] in variables.refusals || g[0] != g[1] && g[1] in variables.whole)
    .map(g, '%s is not allowed: %s'.format([g[0], variables.refusals[?g[1]].orValue({_cel(DOTTED)})]))
  + e.given.map(g, [string(g[0]), g[0].split('.')[0]])
    .filter(g, g[1].matches('[^-]') && !(g[1] in variables.full || g[1] in {_cel(sorted(OTHER_FLAGS))})
      && variables.full.exists(f, f.startsWith(g[1])))
    .map(g, '%s abbreviates %s; write flags in full'.format(
      [g[0], variables.full.filter(f, f.startsWith(g[1]))[0]]))
  + e.hidden.map(w, '%s %s'.format([string(w), {_cel(HIDDEN)}]))
  + e.env.filter(v, v.name in {_cel(list(REFUSED_ENV))}
      && (has(v.valueFrom) || !(v.?value.orValue('') in {_cel(sorted(OFF))})))
    .map(v, '%s is not allowed: %s'.format([string(v.name), variables.refusals[v.name]]))
  + ({_CONFIG}.size() == 0 && {_CONNECTOR} != {_cel(NO_CONNECTOR)}
    ? ['{CONFIG_FLAG} is unset, the pool has the connector ' + {_CONNECTOR}] : [])
  + {_CONFIG}.filter(g, !g[1].matches('"kv_connector"\\\\s*:\\\\s*"' + {_CONNECTOR} + '"'))
    .map(g, 'the connector of {CONFIG_FLAG} is another one, the pool has ' + {_CONNECTOR})
  + {_CONFIG}.filter(g, {_CONNECTOR} in {_cel(PREFIXED_CONNECTORS)})
    .map(g, g[1].findAll('"cache_prefix"\\\\s*:\\\\s*"[^"]*"'))
    .filter(p, p.size() == 0 || !p.all(x, x.endsWith('"' + variables.digest + '"')))
    .map(p, '%s of {CONFIG_FLAG}, the pool has %s'.format(
      [p.size() == 0 ? 'cache_prefix is unset' : p.join(' and '), variables.digest])))""",
    ),
    (
        "seeds",
        "object.spec.containers.map(c, c.?env.orValue([]).filter(v, v.name == 'PYTHONHASHSEED')\n"
        "  .map(v, has(v.valueFrom) ? 'a reference' : v.?value.orValue('')))",
    ),
)

VALIDATIONS: Final = (
    (
        "variables.admitted.size() > 0 || !variables.serves",
        "the pool has no schema in force yet",
        f"'pool %s has no schema in force yet: wait until its condition Accepted is True'.format([{_POOL}])",
    ),
    (
        "variables.chosen.size() > 0 || variables.admitted.size() == 0 || variables.engines.size() == 0",
        f"label {constants.LABEL_SCHEMA} is not the pool's",
        f"'label {constants.LABEL_SCHEMA} is %s, pool %s has %s'.format([\n"
        "  variables.digest == '' ? 'unset' : variables.digest,\n"
        f"  {_POOL}, variables.admitted.map(s, s.digest).join(' or ')])",
    ),
    (
        "!variables.serves || variables.engines.size() > 0",
        "no container is known as the engine",
        f"'%s: name the engine in the annotation {constants.ANNOTATION_CONTAINER}'.format([variables.named == ''\n"
        "  ? 'none of several containers looks like an engine' : 'there is no container ' + variables.named])",
    ),
    (
        "variables.chosen.size() == 0 || variables.problems.all(p, p.size() == 0)",
        "an engine of the pod does not have the schema of its pool",
        f"'not the schema of pool %s: %s'.format([{_POOL}, variables.indexes.filter(i, i < variables.parsed.size()\n"
        "    && variables.problems[i].size() > 0)\n"
        "  .map(i, 'container %s: %s'.format([variables.parsed[i].name, variables.problems[i].join('; ')]))\n"
        "  .join('; ').replace('\\n', ' ')])",
    ),
    (
        # the pool's Services select by this label; as in observe.pods, a controller's name tells whose pod it is
        f"variables.component == ''\n"
        f"  || request.operation == 'UPDATE'\n"
        f"    && {_label(constants.LABEL_COMPONENT, 'oldObject')} == variables.component\n"
        f"    && {_label(constants.LABEL_POOL, 'oldObject')} == {_label(constants.LABEL_POOL)}\n"
        "  || object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false)\n"
        "    && o.name.startsWith(variables.stem)\n"
        f"    && (o.kind == 'ReplicaSet' && o.name.matches({_cel(_REPLICA_SET)})\n"
        f"        && o.name.endsWith('-' + {_label('pod-template-hash')})\n"
        f"      || o.kind == 'StatefulSet' && {_label(_GROUP)}.matches({_cel(_ENGINES)})\n"
        f"        && o.name.startsWith({_label(_GROUP)})))",
        f"label {constants.LABEL_COMPONENT} is for pods of the operator's own workloads",
        f"('label {constants.LABEL_COMPONENT} is %s, which only pods of the '\n"
        "  + 'operator\\'s own workloads have: remove it').format([variables.component])",
    ),
    (
        # engines are among the problems above; this is for whatever else sets a seed
        "variables.admitted.size() == 0 || variables.seeds.all(found, found.all(seed,\n"
        "  variables.admitted.exists(s, s.fields.hashSeed == seed)))",
        "PYTHONHASHSEED is not the pool's",
        f"'hashSeed (PYTHONHASHSEED) must be %s in every container that hashes, as in pool %s'.format([\n"
        f"  variables.admitted.map(s, s.fields.hashSeed).join(' or '), {_POOL}])",
    ),
)
"""Expression, message, and the message with the values."""

_PODS: Final = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def policy(name: str) -> Json:
    """The ValidatingAdmissionPolicy."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "paramKind": {"apiVersion": constants.API_VERSION, "kind": constants.KIND},
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {"matchExpressions": [{"key": constants.LABEL_POOL, "operator": "Exists"}]},
                "resourceRules": [{**_PODS, "operations": ["CREATE", "UPDATE"], "scope": "Namespaced"}],
            },
            "matchConditions": [{"name": key, "expression": text} for key, text in MATCH_CONDITIONS],
            "variables": [{"name": key, "expression": text.strip()} for key, text in VARIABLES],
            "validations": [
                {"expression": expression, "message": message, "messageExpression": words, "reason": "Invalid"}
                for expression, message, words in VALIDATIONS
            ],
        },
    }


def bindings(name: str) -> list[Json]:
    """Two bindings: a new pod in a namespace without any pool is refused, an existing one there is left alone.

    With one binding that denies, a pod could not even lose its finalizers once its pool is gone: whether there are
    params is asked before the match conditions are.
    """
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": f"{name}-{suffix}"},
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "paramRef": {"selector": {}, "parameterNotFoundAction": action},
                "matchResources": {
                    "matchPolicy": "Equivalent",
                    "namespaceSelector": {},
                    "objectSelector": {},
                    "resourceRules": [{**_PODS, "operations": [operation], "scope": "Namespaced"}],
                },
            },
        }
        for suffix, operation, action in (
            ("new-pods-need-a-pool-in-their-namespace", "CREATE", "Deny"),
            ("changed-pods", "UPDATE", "Allow"),
        )
    ]
