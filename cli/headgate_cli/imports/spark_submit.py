"""Turn a `spark-submit` command into a job.

Options and the form `--option=value`: `SparkSubmitOptionParser` and `SparkSubmitArguments` of Spark
3.5 to 4.3.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath

from headgate_cli.imports.report import (
    MASK,
    S3A,
    VALUE,
    Entry,
    ImportedJob,
    application_name,
    as_s3a,
    masked,
)
from headgate_cli.imports.rules import RULES
from headgate_cli.imports.shell_words import Word

COMMAND = "spark-submit"
FLAGS = frozenset(
    {
        "--help",
        "-h",
        "--load-spark-defaults",
        "--supervise",
        "--usage-error",
        "--verbose",
        "-v",
        "--version",
    }
)
#: The configuration key that means the same as an option, which then decides.
_CONF_OF = {
    "--driver-memory": "spark.driver.memory",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
    "--num-executors": "spark.executor.instances",
    "--total-executor-cores": "spark.cores.max",
    "--packages": "spark.jars.packages",
    "--jars": "spark.jars",
    "--py-files": "spark.submit.pyFiles",
    "--files": "spark.files",
    "--name": "spark.app.name",
    "--master": "spark.master",
    "--deploy-mode": "spark.submit.deployMode",
    "--archives": "spark.archives",
    "--repositories": "spark.jars.repositories",
    "--exclude-packages": "spark.jars.excludes",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--driver-class-path": "spark.driver.extraClassPath",
    "--driver-library-path": "spark.driver.extraLibraryPath",
    "--driver-cores": "spark.driver.cores",
    "--keytab": "spark.kerberos.keytab",
    "--principal": "spark.kerberos.principal",
    "--queue": "spark.yarn.queue",
}
_OPTION_OF = {key: option for option, key in _CONF_OF.items()}
#: Options that no field replaces, and what to do instead.
_LEFT = {
    "--archives": "Put the files into the code folder.",
    "--class": "It names a class of Scala or Java, which Headgate does not run.",
    "--driver-class-path": "Use a connector.",
    "--driver-cores": "It has an effect in cluster mode only.",
    "--driver-java-options": "The JVM's options are reserved for Headgate.",
    "--driver-library-path": "Use a connector.",
    "--exclude-packages": "A connector has its dependencies resolved already.",
    "--jars": "Use a connector: the Connectors page shows which there are.",
    "--keytab": "An admin configures Kerberos on the workers' hosts.",
    "--kill": "It is not a job: use `headgate stop`.",
    "--load-spark-defaults": "Headgate does not read spark-defaults.conf: pass its keys as --conf.",
    "--principal": "An admin configures Kerberos on the workers' hosts.",
    "--properties-file": "Add its keys to the command as --conf, and import it again.",
    "--proxy-user": "Drivers run as Headgate's user.",
    "--remote": "Headgate runs the driver itself: set a master.",
    "--repositories": "Connectors are resolved from the server's own repositories.",
    "--status": "It is not a job: use `headgate get application`.",
    "--supervise": "Headgate restarts failed drivers without limit.",
}
OPTIONS = frozenset({*_CONF_OF, *_LEFT, "--conf", "-c"}) - FLAGS
_MASTER = re.compile(
    r"local(\[(\d+|\*)(,\s*\d+)?\])?|spark://[\w.-]+:\d+(,[\w.-]+:\d+)*|yarn"
    r"|k8s://(https?://)?[\w.-]+(:\d+)?"
)
_MEMORY = re.compile(r"\d+[mg]", re.IGNORECASE)
_COUNT = re.compile(r"[0-9]{1,6}")
_EXECUTOR_FIELDS = {
    "--executor-memory": "executor_memory",
    "--executor-cores": "executor_cores",
    "--num-executors": "num_executors",
    "--total-executor-cores": "total_executor_cores",
}
#: Options of a program whose next word is their value, as far as a secret is concerned.
_PROGRAM = re.compile(r"\.(py|jar|r|zip|egg|whl)(\?|$)|^spark-internal$", re.IGNORECASE)
_PROGRAM_OPTION = re.compile(r"-{1,2}([\w.-]+)")


def read_command(job: ImportedJob, words: Sequence[Word]) -> None:
    """Take over the words of a command from `spark-submit` on."""
    for word in words:
        job.defaults |= word.defaults
    job.leave("Headgate starts the driver itself.", words[0].source)
    pairs, program = _options(job, words[1:])
    options = {option for option, _, _ in pairs}
    for option, value, sources in sorted(pairs, key=lambda pair: pair[0] not in ("--master",)):
        if option in ("--conf", "-c"):
            read_conf(job, value, sources, options)
        else:
            read_option(job, option, value, sources)
    read_program(job, [(word.text, word.source) for word in program])


def _options(
    job: ImportedJob, words: Sequence[Word]
) -> tuple[list[tuple[str, str, tuple[str, ...]]], list[Word]]:
    """Return the options with their values and sources, and the program with its arguments.

    Words that only a shell can expand may be options; so may the word after an unknown option.
    """
    pairs: list[tuple[str, str, tuple[str, ...]]] = []
    index = 0
    unknown = False
    while index < len(words):
        if not words[index].text.startswith("-"):
            if _PROGRAM.search(words[index].text) or not any(
                _PROGRAM.search(word.text) for word in words[index:]
            ):
                break
            if VALUE.search(words[index].text):
                job.leave("It may contain options: write them out.", words[index].source)
            elif unknown:
                job.leave("It belongs to an option that spark-submit lacks.", words[index].source)
            else:
                break
            index += 1
            continue
        option, equals, value = words[index].text.partition("=")
        sources: tuple[str, ...] = (words[index].source,)
        if option in OPTIONS and not equals and index + 1 < len(words):
            index += 1
            value, sources = words[index].text, (*sources, words[index].source)
        pairs.append((option, value, sources))
        unknown = option not in OPTIONS | FLAGS and not equals
        index += 1
    return pairs, list(words[index:])


def read_option(job: ImportedJob, option: str, value: str, sources: Iterable[str]) -> None:
    """Take over one option, given as itself or as the key of configuration that means the same."""
    sources = tuple(sources)

    def leave(reason: str) -> None:
        job.leave(reason, *sources)

    if option == "--master":
        if _MASTER.fullmatch(value) or VALUE.fullmatch(value):
            job.take("master", value, *sources)
        else:
            leave("Use local[N], spark://host:port, yarn or k8s://https://host:port.")
    elif option == "--name":
        job.name = application_name(value)
        job.entries.append(_name_entry(job.name, value, sources))
    elif option == "--deploy-mode":
        client = value == "client"
        leave(
            "Headgate always runs the driver on a worker, as client mode does."
            if client
            else "Headgate runs the driver on a worker, so that it can be watched and restarted."
        )
    elif option == "--driver-memory":
        if _MEMORY.fullmatch(value) or VALUE.fullmatch(value):
            job.take("memory", value, *sources)
        else:
            leave('Set the memory as "4g" or "1536m".')
    elif option in _EXECUTOR_FIELDS:
        _read_executors(job, option, value, sources)
    elif option == "--packages":
        _read_packages(job, value, sources)
    elif option in ("--py-files", "--files"):
        _read_files(job, option[2:].replace("-", "_"), value, sources)
    elif option == "--queue":
        job.take("conf.spark.yarn.queue", value, *sources)
    elif option in ("--verbose", "-v", "--help", "-h", "--version", "--usage-error"):
        leave("It changes only what spark-submit prints.")
    else:
        leave(_LEFT.get(option, "spark-submit has no such option."))


def _name_entry(name: str, value: str, sources: tuple[str, ...]) -> Entry:
    remark = "" if name == value else f"as {name}: names are lower-case letters, digits, . _ -"
    return Entry(masked(sources), "metadata.name", remark)


def _read_executors(job: ImportedJob, option: str, value: str, sources: tuple[str, ...]) -> None:
    name = _EXECUTOR_FIELDS[option]
    if str(job.spec.get("master", "local[2]")).startswith("local"):
        job.leave(
            "It has no effect with a local master, which is the default: set spec.master, then "
            f"script.submit.{name}.",
            *sources,
        )
    elif name == "executor_memory":
        if _MEMORY.fullmatch(value):
            job.take(f"script.submit.{name}", value, *sources)
        else:
            job.leave('Set script.submit.executor_memory as "4g" or "1536m".', *sources)
    elif _COUNT.fullmatch(value):
        job.take(f"script.submit.{name}", int(value), *sources)
    else:
        job.leave(f"Set script.submit.{name} to a number.", *sources)


def _read_packages(job: ImportedJob, value: str, sources: tuple[str, ...]) -> None:
    connectors = {part: name for part in _parts(value) if (name := RULES.connector(part))}
    way_out = "There is no connector for it: an admin can add one (docs/connectors.md)."
    taken, left = _split(value, sources, connectors)
    if taken:
        remark = "in the version for the application's Spark"
        job.take("connectors", sorted({*connectors.values()}), *taken, remark=remark)
    if left and VALUE.search(value):
        way_out = "It contains a variable: write the packages out."
    if left:
        job.leave(way_out, *left)


def _read_files(job: ImportedJob, name: str, value: str, sources: tuple[str, ...]) -> None:
    local = [part for part in _parts(value) if is_local(part)]
    taken, left = _split(value, sources, local)
    if taken:
        paths = [path.removeprefix("file://") for path in local]
        job.take(f"script.submit.{name}", paths, *taken)
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
    if all(part in known for part in parts) and parts:
        return sources, ()
    if not any(part in known for part in parts):
        return (), sources
    option = sources[0].partition("=")[0]
    return (option, *(part for part in parts if part in known)), tuple(
        part for part in parts if part not in known
    )


def read_conf(
    job: ImportedJob, pair: str, sources: tuple[str, ...], options: Iterable[str] = ()
) -> None:
    """Take over one `key=value` of Spark's configuration."""
    key, equals, value = pair.partition("=")
    key, value = key.strip(), value.strip()
    if not equals:
        job.leave("Write it as key=value.", *sources)
    elif key in _OPTION_OF and _OPTION_OF[key] not in ("--driver-cores", "--queue"):
        if _OPTION_OF[key] in options:
            job.leave(f"{_OPTION_OF[key]} decides.", *sources)
        else:
            read_option(job, _OPTION_OF[key], value, sources)
    elif key == "spark.scheduler.mode" and value in ("FAIR", "FIFO"):
        job.take("scheduler_mode", value, *sources)
    elif connectors := RULES.connectors_of(key, value):
        job.take("connectors", connectors, *sources, remark="the connector makes this setting")
    elif reason := RULES.why_not(key, value):
        job.leave(reason, *_hidden(sources, key, value))
    elif RULES.is_secret(key, value):
        _read_secret(job, f"conf.{key}", key, value, sources)
    else:
        job.take(f"conf.{key}", value, *sources)


def read_environment(job: ImportedJob, name: str, value: str, *sources: str) -> None:
    """Take over a variable of the job's environment."""
    if re.fullmatch(RULES.reserved_environment, name, re.IGNORECASE):
        job.leave(
            "It controls Python, Java, Spark, a library or Headgate.",
            *_hidden(sources, name, value),
        )
    elif RULES.is_secret(name, value):
        _read_secret(job, f"env.{name}", name, value, sources)
    else:
        job.take(f"env.{name}", value, *sources)


def _read_secret(
    job: ImportedJob, path: str, key: str, value: str, sources: tuple[str, ...]
) -> None:
    """Take over a secret by name. Its value is written nowhere."""
    job.hide(value)
    if not RULES.names_secret(key, value):  # a secret within a longer text
        reason = "It contains a secret: write a reference in its place (docs/security.md)."
        job.leave(reason, *_hidden(sources, key, value))
        return
    variable = VALUE.fullmatch(value)
    name = variable[1] if variable else re.sub(r"\W+", "_", key).strip("_").upper()
    job.take(
        path,
        f"env:{name}",
        *_hidden(sources, key, value),
        remark=f"an admin binds the secret env:{name}; its value was not taken over",
    )


def _hidden(sources: Iterable[str], key: str, value: str) -> tuple[str, ...]:
    """Return the sources, with the one that holds a secret value replaced by its key and a mask."""
    if not RULES.is_secret(key, value):
        return tuple(sources)
    return tuple(source if source in OPTIONS else f"{key}={MASK}" for source in sources)


def read_program(job: ImportedJob, words: Sequence[tuple[str, str]]) -> None:
    """Take over the program and its arguments, each as text and source."""
    if not words:
        job.leave("There is no program.")
        return
    (path, source), arguments = words[0], words[1:]
    if PurePosixPath(path.partition("?")[0]).suffix != ".py":
        what = "Jars of Scala and Java" if path.endswith(".jar") else "Programs other than .py"
        job.leave(f"{what} are not supported.", source)
        _read_arguments(job, arguments, without=f"{what} are not supported.")
        return
    if is_local(path):
        file = path.removeprefix("file://")
        if file.startswith("/"):
            job.take("script.file", file, source)
        else:
            remark = "put its folder next to the manifest"
            job.take("script.file", PurePosixPath(file).name, source, remark=remark)
        _add_folder(job, file, program=True)
    else:
        job.take(
            "script.file",
            PurePosixPath(path.partition("?")[0]).name,
            source,
            remark=f"put a copy of it into {CODE} next to the manifest",
        )
        job.spec["code"] = {"upload": CODE}
    _read_arguments(job, arguments)
    if not job.name:
        job.name = application_name(PurePosixPath(path).stem)


#: The folder next to the manifest for code that is not on this machine.
CODE = "./code"


#: How a shell script passes its own arguments on.
_ALL_ARGUMENTS = "${values.ARGUMENT_ALL}"


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
        option = _PROGRAM_OPTION.fullmatch(text)
        named = _PROGRAM_OPTION.fullmatch(text.partition("=")[0])
        following = arguments[index + 1][0] if index + 1 < len(arguments) else ""
        if option and following and RULES.is_secret(option[1], following):
            job.hide(following)
            job.leave(reason, source, MASK)
            index += 1
        elif named and "=" in text and RULES.is_secret(named[1], text.partition("=")[2]):
            job.hide(text.partition("=")[2])
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
            job.spec["script"].setdefault("arguments", []).append(as_s3a(text))
            remark = S3A if as_s3a(text) != text else ""
            job.entries.append(Entry(masked([source]), "spec.script.arguments", remark))
        index += 1


def is_local(path: str) -> bool:
    """Return whether a path is on this machine's disk."""
    return "://" not in path.removeprefix("file://") and not path.startswith("local:")


def _add_folder(job: ImportedJob, path: str, *, program: bool = False) -> None:
    """Add the folder that contains a file: by its path, or as an upload if it is relative."""
    folder = str(PurePosixPath(path).parent)
    if path.startswith("/"):
        folders = job.spec.setdefault("python_path", [])
        if not any(PurePosixPath(path).is_relative_to(present) for present in folders):
            folders.append(folder)
    elif program:
        job.spec["code"] = {"upload": folder if folder.startswith(".") else f"./{folder}"}
