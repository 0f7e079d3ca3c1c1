"""Turn a `spark-submit` command into a job."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from headgate_cli.imports.report import VALUE, Entry, ImportedJob, application_name, masked
from headgate_cli.imports.rules import MASK, RULES
from headgate_cli.imports.shell_words import Word

COMMAND = "spark-submit"
#: The folder next to the manifest for code that is not on this machine.
CODE = "./code"
_PROGRAM = re.compile(r"\.(py|jar|r|zip|egg|whl)(\?|$)|^spark-internal$", re.IGNORECASE)
#: Options of a program whose next word is their value, as far as a secret is concerned.
_PROGRAM_OPTION = re.compile(r"-{1,2}([\w.-]+)")
#: How a shell script passes its own arguments on.
_ALL_ARGUMENTS = "${values.ARGUMENT_ALL}"
#: The version of Spark for which a package was made.
_SPARK_PACKAGE = re.compile(
    r"org\.apache\.spark:[^:,]+:(?P<itself>\d\.\d+)\.[^,]+|[-_](?P<other>\d\.\d+)_2\.1\d:"
)
#: The version in the path of an installation.
_SPARK_FOLDER = re.compile(r"spark-(\d\.\d+)\.\d+")
#: A key of a catalog other than Iceberg's `hadoop`, whose address only an admin may set.
_CATALOG = re.compile(r"spark\.sql\.catalog\.(\w+)(\..*)?")
_SERVICE = re.compile(r"type=(?!hadoop$).*|catalog-impl=.*|uri=.*", re.IGNORECASE)
_REST = re.compile(r"type=rest|catalog-impl=.*\.RESTCatalog", re.IGNORECASE)

#: Settings that have no effect with a local master.
_CLUSTER = re.compile(r"spark\.(dynamicAllocation\..*|(driver|executor)\.memoryOverhead\w*)")

#: An option, its value, and the words that contain them.
Option = tuple[str, str, tuple[str, ...]]


def read_command(job: ImportedJob, words: Sequence[Word], defaults: Sequence[Option] = ()) -> None:
    """Take over the words of a command from `spark-submit` on; `defaults` are replaced by them."""
    for word in words:
        job.defaults = word.defaults | job.defaults
    folder = _SPARK_FOLDER.search(job.known(words[0].text))
    if folder and "spark" not in job.spec:
        job.resolve(words[0].text)
        read_spark(job, folder[1], words[0].source)
    else:
        job.leave("Headgate starts the driver itself.", words[0].source)
    options, program = _options(job, words[1:])
    read_options(job, [*defaults, *options])
    read_program(job, [(word.text, word.source) for word in program])


def _options(job: ImportedJob, words: Sequence[Word]) -> tuple[list[Option], Sequence[Word]]:
    """Return the options with their values and sources, and the program with its arguments.

    Words that only a shell can expand may be options; so may the word after an unknown option.
    """
    options: list[Option] = []
    index, unknown = 0, False
    while index < len(words):
        word = words[index]
        if not word.text.startswith("-"):
            if _PROGRAM.search(word.text) or not any(
                _PROGRAM.search(other.text) for other in words[index:]
            ):
                break
            if VALUE.search(word.text):
                job.leave("It may contain options: write them out.", word.source)
            elif unknown:
                job.leave("It belongs to an option that spark-submit lacks.", word.source)
            else:
                break
            index += 1
            continue
        option, equals, value = word.text.partition("=")
        sources: tuple[str, ...] = (word.source,)
        if RULES.takes_value(option) and not equals and index + 1 < len(words):
            index += 1
            value, sources = words[index].text, (word.source, words[index].source)
        options.append((option, value, sources))
        unknown = option not in RULES.replaced["options"] and not equals
        index += 1
    return options, words[index:]


def read_options(job: ImportedJob, options: Sequence[Option]) -> None:
    """Take over options and settings, the master first: whether others have an effect depends
    on it. An option replaces the key of configuration that means the same."""
    names = {option: re.split("[:=]", sources[0])[0] for option, _, sources in options}
    pairs: list[Option] = []
    services: dict[str, list[Option]] = {}  # the settings of each catalog of a service
    for option, value, sources in options:
        if option not in ("--conf", "-c"):
            pairs.append((option, value, sources))
            continue
        key, equals, value = (part.strip() for part in value.partition("="))
        same = RULES.options_by_key.get(key)
        catalog = _CATALOG.fullmatch(key)
        if not equals:
            job.leave("Write it as key=value.", *sources)
        elif same and same in names:
            job.leave(f"{names[same]} decides.", *sources)
        elif catalog and catalog[1] == "spark_catalog" and not RULES.connectors_of(key, value):
            reason = "spark_catalog stays Spark's own: ask an admin to declare a catalog."
            job.leave(reason, *_hidden(sources, key, value))
        elif catalog and _has_setting(catalog[1], _SERVICE, options):
            services.setdefault(catalog[1], []).append((key, value, sources))
            if RULES.is_secret(key, value):
                job.hide(value)
        else:
            pairs.append((same or key, value, sources))
    for key, value, sources in sorted(pairs, key=lambda pair: pair[0] != "--master"):
        (_read_option if key.startswith("-") else _read_setting)(job, key, value, sources)
    for name, settings in services.items():
        _read_service(job, name, settings, is_rest=_has_setting(name, _REST, options))


def _read_service(
    job: ImportedJob, name: str, settings: Sequence[Option], *, is_rest: bool
) -> None:
    """Take over the name of a catalog, whose settings only an admin may declare."""
    if is_rest:
        if "iceberg" not in job.spec.setdefault("connectors", []):
            job.spec["connectors"].append("iceberg")
        own = [source for key, _, words in settings if key.endswith(f".{name}") for source in words]
        job.take("catalogs", [name], *own, remark="it needs the connector iceberg")
    for key, value, sources in settings:
        if not is_rest:
            reason = "Only catalogs of type hadoop and rest are supported. Use one of these."
        elif key.endswith(f"catalog.{name}"):
            continue
        elif RULES.is_secret(key, value) and not key.endswith((".credential", ".token")):
            reason = "It holds a secret for which a declared catalog has no place: ask an admin."
        elif RULES.is_secret(key, value):
            reason = f"A secret that an admin binds to the catalog {name}."
        elif key.endswith("-impl") or re.search(RULES.class_name, value):
            reason = "A class, which no catalog can set: leave it out."
        else:
            reason = f"Ask an admin to declare the catalog {name} with these settings."
        job.leave(reason, *_hidden(sources, key, value))


def _has_setting(name: str, pattern: re.Pattern[str], options: Sequence[Option]) -> bool:
    """Return whether a catalog has a setting, `key=value` below its name, of this pattern."""
    prefix = f"spark.sql.catalog.{name}."
    return any(
        value.strip().startswith(prefix) and pattern.fullmatch(value.strip()[len(prefix) :])
        for _, value, _ in options
    )


def _read_option(job: ImportedJob, option: str, value: str, sources: tuple[str, ...]) -> None:
    row: Mapping[str, str] = RULES.replaced["options"].get(option, {})
    field, form = row.get("field", ""), row.get("form", "")
    if form == "name":
        job.name = application_name(value)
        remark = f"as {job.name}: names are lower-case letters, digits, . _ -"
        entry = Entry(masked(sources), "metadata.name", remark * (job.name != value))
        job.entries.append(entry)
    elif form == "packages":
        _read_packages(job, value, sources)
    elif form == "files":
        _read_files(job, field, value, sources)
    elif not form:
        job.leave(row.get("left", "spark-submit has no such option."), *sources)
    elif field.startswith("script.") and job.spec.get("master", "local").startswith("local"):
        job.leave(_without_effect(job, field), *sources)
    elif VALUE.fullmatch(value) or re.fullmatch(
        RULES.replaced["forms"][form]["pattern"], VALUE.sub("1", value)
    ):
        number = form == "count" and not VALUE.search(value)
        job.take(field, int(value) if number else value, *sources)
    else:
        job.leave(RULES.replaced["forms"][form]["left"], *sources)


def _without_effect(job: ImportedJob, field: str) -> str:
    default = "" if "master" in job.spec else ", which is the default"
    return f"It has no effect with a local master{default}: set spec.master, then {field}."


def read_spark(job: ImportedJob, version: str, *tokens: str) -> None:
    """Take over the version of Spark, "3.5.1", or report that Headgate does not run it."""
    if (spark := ".".join(version.split(".")[:2])) in RULES.sparks:
        job.take("spark", spark, *tokens)
    else:
        choices = ", ".join(RULES.sparks)
        job.leave(f"Headgate runs Spark {choices}: choose one in spec.spark.", *tokens)


def _read_packages(job: ImportedJob, value: str, sources: tuple[str, ...]) -> None:
    value = job.resolve(value)
    connectors = {part: name for part in _parts(value) if (name := RULES.connector(part))}
    way_out = "There is no connector for it: an admin can add one (docs/connectors.md)."
    taken, left = _split(value, sources, connectors)
    if taken:
        remark = "in the version for the application's Spark"
        found = _SPARK_PACKAGE.search(value)
        version = (found["itself"] or found["other"]) if found else ""
        if version in RULES.sparks and "spark" not in job.spec:
            job.spec["spark"] = version
            remark += f", which is {version} as here"
        elif version and version not in (*RULES.sparks, job.spec.get("spark")):
            remark += f"; Headgate does not run Spark {version}"
        job.take("connectors", sorted({*connectors.values()}), *taken, remark=remark)
    if left and VALUE.search(value):
        way_out = "It contains a variable: write the packages out."
    if left:
        job.leave(way_out, *left)


def _read_files(job: ImportedJob, field: str, value: str, sources: tuple[str, ...]) -> None:
    local = [part for part in _parts(value) if _is_local(part)]
    taken, left = _split(value, sources, local)
    if taken:
        paths = [path.removeprefix("file://") for path in local]
        job.take(field, paths, *taken)
        for path in paths:
            _add_folder(job, path)
    if left:
        job.leave("Put it into the code folder, and add its path there.", *left)


def _parts(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _split(
    value: str, sources: tuple[str, ...], known: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tokens of the known parts of a list, and of the others."""
    parts = _parts(value)
    if parts and all(part in known for part in parts):
        return sources, ()
    if not any(part in known for part in parts):
        return (), sources
    option = sources[0].partition("=")[0]
    return (option, *(part for part in parts if part in known)), tuple(
        part for part in parts if part not in known
    )


def _read_setting(job: ImportedJob, key: str, value: str, sources: tuple[str, ...]) -> None:
    if key == "spark.scheduler.mode" and value in ("FAIR", "FIFO"):
        job.take("scheduler_mode", value, *sources)
    elif connectors := RULES.connectors_of(key, value):
        job.take("connectors", connectors, *sources, remark="the connector makes this setting")
    elif reason := RULES.replaced["settings"].get(key) or RULES.why_not(key, value):
        job.leave(reason, *_hidden(sources, key, value))
    elif RULES.is_secret(key, value):
        _read_secret(job, f"conf.{key}", key, value, sources)
    elif _CLUSTER.fullmatch(key) and job.spec.get("master", "local").startswith("local"):
        job.leave(_without_effect(job, f"spec.conf.{key}"), *sources)
    else:
        job.take(f"conf.{key}", value, *sources)


def read_environment(job: ImportedJob, name: str, value: str, *sources: str) -> None:
    """Take over a variable of the job's environment."""
    if re.fullmatch(RULES.reserved_environment, name, re.IGNORECASE):
        reason = "It controls Python, Java, Spark, a library or Headgate."
        job.leave(reason, *_hidden(sources, name, value))
    elif RULES.is_secret(name, value):
        _read_secret(job, f"env.{name}", name, value, sources)
    else:
        job.take(f"env.{name}", value, *sources)


def _read_secret(
    job: ImportedJob, path: str, key: str, value: str, sources: tuple[str, ...]
) -> None:
    """Take over a secret by name. Its value is written nowhere."""
    known = job.known(value)
    job.hide(value)
    if not RULES.names_secret(key, value):  # a secret within a longer text
        reason = "It contains a secret: write a reference in its place (docs/security.md)."
        job.leave(reason, *_hidden(sources, key, value))
        return
    variable = VALUE.fullmatch(value)
    name = variable[1] if variable else re.sub(r"\W+", "_", key).strip("_").upper()
    remark = f"an admin binds the secret env:{name}; its value was not taken over"
    before = job.bound.get(name, known)
    if before != known and not VALUE.search(before + known):
        remark += "; it replaces another value of the same secret"
    job.bound[name] = before if VALUE.search(known) else known
    job.take(path, f"env:{name}", *_hidden(sources, key, value), remark=remark)


def _hidden(sources: Iterable[str], key: str, value: str) -> tuple[str, ...]:
    """Return the sources, with the one that holds a secret value replaced by its key and a mask."""
    if not RULES.is_secret(key, value):
        return tuple(sources)
    return tuple(source if RULES.takes_value(source) else f"{key}={MASK}" for source in sources)


def read_program(job: ImportedJob, words: Sequence[tuple[str, str]]) -> None:
    """Take over the program and its arguments, each as text and source."""
    if not words:
        job.leave("There is no program.")
        return
    (path, source), arguments = words[0], words[1:]
    path = job.resolve(path) if VALUE.fullmatch(path) else path
    bare = PurePosixPath(path.partition("?")[0])
    file = path.removeprefix("file://")
    if bare.suffix != ".py":
        what = "Jars of Scala and Java" if path.endswith(".jar") else "Programs other than .py"
        unknown = "It is a variable: write out the path of the program."
        job.leave(unknown if VALUE.fullmatch(path) else f"{what} are not supported.", source)
        _read_arguments(job, arguments, without=f"{what} are not supported.")
        return
    if not _is_local(path):
        remark = f"put a copy of it into {CODE} next to the manifest"
        job.spec["code"] = {"upload": CODE}
    else:
        remark = "" if file.startswith("/") else "put its folder next to the manifest"
        _add_folder(job, file, program=True)
    job.take("script.file", bare.name if remark else file, source, remark=remark)
    if "spark" not in job.spec:
        reason = "no version that Headgate runs is in the input, so Headgate's default applies: "
        job.entries.append(Entry((), "spec.spark", f"{reason}set spark to the job's version"))
    _read_arguments(job, arguments)
    job.name = job.name or application_name(PurePosixPath(path).stem)


def _read_arguments(
    job: ImportedJob, arguments: Sequence[tuple[str, str]], *, without: str = ""
) -> None:
    """Take over the program's arguments; `without` is the reason if there is no program."""
    reason = "Arguments cannot hold secrets: read it from the environment (spec.env)."
    for text, _ in arguments:
        for secret in RULES.secrets_in(text):
            job.hide(secret)
    index = 0
    while index < len(arguments):
        text, source = arguments[index]
        option = _PROGRAM_OPTION.fullmatch(text.partition("=")[0])
        value = text.partition("=")[2]
        following = arguments[index + 1][0] if index + 1 < len(arguments) and not value else ""
        if RULES.announces(text, following):
            job.hide(following)
            job.leave(reason, source, MASK)
            index += 1
        elif option and RULES.is_secret(option[1], value):
            job.hide(value)
            job.leave(reason, f"{text.partition('=')[0]}={MASK}")
        elif RULES.masked(text) != text or job.conceal(text) != text:
            job.leave(reason, MASK)
        elif any(RULES.names_secret(name) for name in VALUE.findall(text)):
            job.leave(reason, source)
        elif text == _ALL_ARGUMENTS:
            job.leave("These are the shell script's own arguments: add those it gets.", source)
        elif without:
            job.leave(without, source)
        else:
            flag = arguments[index - 1][0] if index else ""
            about = f"{flag if flag.startswith('-') else ''} {text.partition('=')[0]}"
            split = bool(VALUE.search(text)) and '"' not in source
            remark = "it becomes one argument, whatever it contains" * split
            job.take("script.arguments", [text], source, remark=remark, about=about)
        index += 1


def _is_local(path: str) -> bool:
    return re.match(r"local:|~|\$|(?!file:)\w+://", path) is None


def _add_folder(job: ImportedJob, path: str, *, program: bool = False) -> None:
    """Add the folder that contains a file: by its path, or as an upload if it is relative."""
    folder = str(PurePosixPath(path).parent)
    if path.startswith("/"):
        folders = job.spec.setdefault("python_path", [])
        if not any(PurePosixPath(path).is_relative_to(present) for present in folders):
            folders.append(folder)
    elif program:
        job.spec["code"] = {"upload": folder if folder.startswith(".") else f"./{folder}"}
