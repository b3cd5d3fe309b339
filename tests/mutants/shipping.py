"""Faults in shipping code to workers, in log filters, and in handling results of user code."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_BY_NAME = ("tests/unit/spark/code/test_code_by_name.py",)
_EXCEPTIONS = ("tests/unit/runtime/test_user_exceptions.py",)
_GENERATORS = ("tests/unit/topology/test_asynchronous_functions.py",)
_SIGNALS = ("tests/unit/spark/test_signal_handlers.py",)
_LOGGING = ("tests/unit/spark/worker/test_worker_logging.py",)

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "cached functions of user modules are pickled as names",
        "spark/code/named_objects.py",
        "    if module in modules:\n        return False\n    try:",
        "    try:",
        tests=_BY_NAME,
    ),
    mutant(
        "modules imported in function bodies are not shipped",
        "spark/code/shipping.py",
        "        imported = self._modules.imported_by(function)\n",
        "        imported = self._modules.imported_by(function)[:0]\n",
        tests=_BY_NAME,
    ),
    mutant(
        "functions do not share the variables of their module",
        "spark/code/shipping.py",
        "        self.globals_ref.update(modules.globals_by_id)\n",
        "",
        tests=_BY_NAME,
    ),
    mutant(
        "a later pickle replaces the modules of a worker",
        "spark/code/user_modules.py",
        "name == _MAIN or name in sys.modules:",
        "name == _MAIN:",
        tests=_BY_NAME,
    ),
    mutant(
        "modules stay in a worker after its application",
        "spark/code/user_modules.py",
        "            for name in names:\n                sys.modules.pop(name, None)\n",
        "",
        tests=_BY_NAME,
    ),
    mutant(
        "tracebacks show cloudpickle's file names",
        "spark/code/named_objects.py",
        "    return make(*arguments).replace(co_filename=filename)",
        "    return make(*arguments)",
        tests=_BY_NAME,
    ),
    mutant(
        "a singleton becomes a new object in each pickle",
        "spark/code/named_objects.py",
        "    return _singletons.setdefault((kind, name), object.__new__(kind))",
        "    return object.__new__(kind)",
        tests=_BY_NAME,
    ),
    mutant(
        "importing a submodule ships its siblings",
        "spark/code/user_modules.py",
        "if not (isinstance(value, ModuleType) and value.__name__.startswith(prefix))",
        "if value is not None",
        tests=_BY_NAME,
    ),
    mutant(
        "the lock of a cached property is reported as the cause",
        "spark/code/unpicklable.py",
        "    elif isinstance(thing, functools.cached_property):\n"
        "        # Its lock is not pickled.\n"
        '        yield _Step("function", thing.func)\n',
        "",
        tests=_BY_NAME,
    ),
    mutant(
        "an exception of any size is sent to the driver",
        "spark/connection/messages.py",
        "if len(data) > _MAX_EXCEPTION_BYTES:",
        "if not data:",
        tests=_EXCEPTIONS,
    ),
    mutant(
        "the text of an exception is trusted",
        "errors.py",
        "    return _bounded(lambda: str(error), error)",
        "    return str(error)",
        tests=_EXCEPTIONS,
    ),
    mutant(
        "a test driver commits after SystemExit",
        "testing/stepping.py",
        "            self._failure = error\n            raise\n",
        "            raise\n",
        tests=_EXCEPTIONS,
    ),
    mutant(
        "the first result of a predicate is used for all records",
        "operators/stateless.py",
        "if GeneratorType in set(map(type, matches)):",
        "if GeneratorType in set(map(type, matches[:1])):",
        tests=_GENERATORS,
    ),
    mutant(
        "generators returned by actions are ignored",
        "async_checks.py",
        "    if isinstance(result, GeneratorType):\n        raise TypeError(",
        "    if result is NotImplemented:\n        raise TypeError(",
        tests=_GENERATORS,
    ),
    mutant(
        "forked children keep the handlers of their parent",
        "spark/signal_handlers.py",
        "            signal.signal(each.number, each.before)\n    _installed.clear()",
        "            pass\n    _installed.clear()",
        tests=_SIGNALS,
    ),
    mutant(
        "a signal reaches a forked child before its handlers are restored",
        "spark/signal_handlers.py",
        "signal.pthread_sigmask(signal.SIG_BLOCK, numbers)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, set())",
        tests=_SIGNALS,
    ),
    mutant(
        "the filters of loggers are not shipped",
        "spark/worker/worker_logging.py",
        "            logger_filters[name] = _pickle_filters(each.filters)",
        "            logger_filters[name] = ()",
        tests=_LOGGING,
    ),
    mutant(
        "a log line without a field of the format is an error",
        "spark/worker/worker_logging.py",
        "            return _PLAIN.format(record)",
        "            raise",
        tests=_LOGGING,
    ),
    mutant(
        "the style of a format is not shipped",
        "spark/worker/worker_logging.py",
        'return "%" if formatter is None else _STYLES.get(type(formatter._style), "%")',
        'return "%"',
        tests=_LOGGING,
    ),
    mutant(
        "workers do not log as JSON if the driver does",
        "spark/worker/worker_logging.py",
        "            if self.millstream_json\n",
        "            if False\n",
        tests=_LOGGING,
    ),
    mutant(
        "the program's own lines on workers are not JSON if they are in the driver",
        "spark/worker/worker_logging.py",
        "    if settings.style == _JSON:",
        "    if False:",
        tests=_LOGGING,
    ),
    mutant(
        "log lines of coroutines and threads lack the task",
        "runtime/stack_inspection.py",
        "_CALLERS: Final = (StreamTask, CoroutineRunner, ThreadRunner)",
        "_CALLERS: Final = (StreamTask,)",
        tests=("tests/unit/runtime/test_stack_inspection.py",),
    ),
    mutant(
        "the class of a level is shipped",
        "spark/worker/worker_logging.py",
        "        int(logger.level), bool(logger.propagate)",
        "        logger.level, bool(logger.propagate)",
        tests=_LOGGING,
    ),
    mutant(
        "an unvalidated format ends the worker",
        "spark/worker/worker_logging.py",
        "settings.style, validate=False)",
        "settings.style, validate=True)",
        tests=_LOGGING,
    ),
    mutant(
        "a log filter that raises fails the function that logs",
        "spark/worker/worker_logging.py",
        "            yield _LenientFilter(pickle.loads(each))",
        "            yield pickle.loads(each)",
        tests=_LOGGING,
    ),
    mutant(
        "dictConfig silences the next application of a worker",
        "spark/worker/worker_logging.py",
        "        self._enable_millstream_loggers()\n",
        "",
        tests=_LOGGING,
    ),
    mutant(
        "a loguru logger with a file is an error",
        "spark/code/named_objects.py",
        " if is_picklable(each)}",
        "}",
        tests=_BY_NAME,
    ),
    mutant(
        "a loguru logger with only a file logs nothing on workers",
        "spark/code/named_objects.py",
        "    if had_sinks and not core.handlers:",
        "    if had_sinks and core.handlers:",
        tests=_BY_NAME,
    ),
)
