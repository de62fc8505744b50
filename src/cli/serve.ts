import { closeSync, existsSync, openSync, statSync } from 'node:fs';

import { dollars } from '../platform/dollars.ts';
import type { Config } from '../config/config.ts';
import { configPlace, loadConfig } from '../config/load.ts';
import type { Override } from '../config/overrides.ts';
import { isLocalOnly } from '../config/public-url.ts';
import { consoleUrl, entryUrl } from '../platform/entries.ts';
import { scriptSchema } from '../inference/engines/scripted/script-schema.ts';
import { createLog } from '../platform/log.ts';
import type { Log } from '../platform/log.ts';
import { memoryLimitBytes } from '../platform/memory.ts';
import { ModelFileError } from '../inference/model-files/problem.ts';
import { progressDisplay } from '../inference/model-files/progress.ts';
import { leastMemoryBytes } from '../app/body-room.ts';
import { lookAtBackend, reportLook } from '../app/look.ts';
import { startService } from '../app/start.ts';
import type { Service } from '../app/service.ts';
import { defaultModels } from '../config/defaults.ts';
import { offerOfBetterModels } from './better-models.ts';
import { bytesInWords, secondsInWords } from './amount.ts';
import { lookLines } from './backend-lines.ts';
import type { Failure } from './command-failure.ts';
import type { Context } from './context.ts';
import { forbidCoreDumps } from './core-dumps.ts';
import { crashExitCode, watchForCrashes } from './crash.ts';
import { exitCodes, explain, failureOf } from './failure.ts';
import { freeBytesOf, shownPath } from './folder.ts';
import { logOutput } from './log-output.ts';
import { openFilesLimit, openFilesMin, openFilesWanted } from './open-files.ts';
import type { Printer } from './output.ts';
import { version } from './version.ts';

export interface ServeOptions {
  readonly key: boolean;
  readonly config?: string;
  readonly host?: string;
  readonly port?: number;
  readonly accountHost?: string;
  readonly accountPort?: number;
}

/** Listening addresses from the options, which override the file and the variables. */
export const listenOverrides = ({ host, port, accountHost, accountPort }: ServeOptions): readonly Override[] =>
  [
    { name: '--host', path: ['server', 'inference', 'host'], value: host },
    { name: '--port', path: ['server', 'inference', 'port'], value: port },
    { name: '--account-host', path: ['server', 'account', 'host'], value: accountHost },
    { name: '--account-port', path: ['server', 'account', 'port'], value: accountPort },
  ].flatMap(({ name, path, value }) =>
    value === undefined ? [] : [{ name, path, source: `option ${name}`, text: String(value) }],
  );

/**
 * `tokenhouse serve`: runs until a signal. Messages go to standard error, the log (JSON lines, text on a terminal) to standard
 * output. On a terminal a later start reports its facts in five lines; everywhere else each fact has its own line.
 */
export async function serveCommand(context: Context, options: ServeOptions): Promise<number> {
  const { config, environment } = context;
  const display = progressDisplay(process.stderr);
  const print = { ...context.print, say: besides(display, context.print.say) };
  const overrides = listenOverrides(options);
  const { directory } = context.around;
  const startedAt = performance.now();
  print.say(`Tokenhouse ${version} · node ${process.versions.node} · ${processesInWords(config)} · no telemetry`);
  sayNotes(context, print);

  const stop = stopSignals();
  const log = createLog(logOutput(display.hide));
  let fatal: Error | undefined;
  let cut = (): void => {};
  const crash = watchForCrashes({ log, stop: stop.crashed, cut: () => cut() });
  let service: Service;
  try {
    service = await startService({
      config,
      environment,
      log,
      version,
      readConfig: (running, text) =>
        loadConfig({ environment, path: options.config, directory, scriptSchema, overrides, running, text }),
      workerEntry: entryUrl('serve-worker'),
      configFile: configPlace(options.config, directory, environment).file,
      onFatal: (error) => {
        fatal = error;
        stop.now();
      },
      onDownload: (_model, progress) => display.show(progress),
    });
  } catch (error) {
    return sayFailure(await failureOf(error, directory, config), log, print);
  }
  cut = () => service.cut();
  // During a stop it does not count as a second request to stop.
  onHangup(
    () => void service.reload(),
    () => {
      if (!stop.wasRequested()) stop.now();
    },
  );
  const isFirst = service.firstAccount !== undefined;
  const isShort = process.stderr.isTTY && !isFirst;
  sayPlaces(config, service, isShort, print.say);
  const models = Promise.all(
    service.backends.map((backend) => modelLines(backend, startedAt, log, print.say, display.end)),
  );
  await Promise.race([models, stop.requested]);
  if (!stop.wasRequested()) {
    const elapsedMs = performance.now() - startedAt;
    log.service({
      level: 'info',
      event: 'started',
      detail: {
        version,
        config: config.file ?? null,
        data: config.storage.directory,
        inference_url: service.inferenceUrl,
        account_url: service.accountUrl,
        migrations: service.migrated.length,
        elapsed_ms: Math.round(elapsedMs),
      },
    });
    sayAddresses(config, service, isShort, elapsedMs, print.say);
    if (service.firstAccount !== undefined) welcome(config, service, service.firstAccount, options.key, print.say);
    if (service.ownerLink !== undefined) sayOwnerLink(service.ownerLink, isShort, options.key, print.say);
  }
  await stop.requested;
  print.say(
    `stopping: ${crash.happened ? 'an internal error, see the log; running requests have 10 seconds' : stopText(config)}`,
  );
  await service.stop({ takesNothing: crash.happened });
  crash.end();
  if (crash.happened) return crashExitCode;
  if (fatal === undefined) return 0;
  sayFailure(await failureOf(fatal, directory, config), log, print);
  return exitCodes.unavailable;
}

/** What is said while a model is fetched has a line of its own. */
const besides =
  (display: ReturnType<typeof progressDisplay>, say: Say): Say =>
  (line) => {
    display.hide();
    say(line);
  };

/** Notes for the operator about this machine, before anything starts. */
function sayNotes({ config: { server } }: Context, print: Pick<Printer, 'say'>): void {
  const note = (what: string): void => print.say(`note     ${what}`);
  const memoryBytes = memoryLimitBytes();
  if (memoryBytes < leastMemoryBytes * server.workers)
    note(
      `there are ${bytesInWords(memoryBytes)} of memory; ${server.workers === 1 ? 'the service needs' : `${server.workers} workers need`} ${bytesInWords(leastMemoryBytes * server.workers)}, and embedded models more`,
    );
  if (!forbidCoreDumps())
    note(
      'core dumps are on and could not be turned off: a crash may write the contents of requests to the disk; start with `ulimit -c 0`',
    );
  const openFiles = openFilesLimit();
  if (openFiles !== undefined && openFiles < openFilesMin)
    note(
      `${openFiles} files and connections may be open at once (ulimit -Hn); connections beyond that are refused: start with \`ulimit -Hn ${openFilesWanted}\``,
    );
}

function processesInWords({ server: { workers }, storage }: Config): string {
  const store = storage.type === 'sqlite' ? 'SQLite' : 'PostgreSQL';
  if (workers > 1) return `${workers} workers, ${store}`;
  return storage.type === 'sqlite' ? `one process, ${store}` : store;
}

/** Reports in words on standard error, and as an event in the log on standard output. */
function sayFailure(failure: Failure, log: Log, print: Printer): number {
  const { what, why, repair, exitCode } = failure;
  const detail = { error: what.join('\n'), why, repair: repair[0] ?? null, exit_code: exitCode };
  log.service({ level: 'error', event: 'failed', detail });
  explain(failure, { ...print, json: false });
  return exitCode;
}

type Say = (line: string) => void;

function sayPlaces(config: Config, service: Service, isShort: boolean, say: Say): void {
  const { storage } = config;
  const { directory } = storage;
  const configuration = config.file === undefined ? undefined : shownPath(config.file);
  const isNew = service.firstAccount !== undefined;
  const done = service.migrated.length === 0 || isNew ? [] : ['schema brought up to date'];
  const data =
    storage.type === 'postgres'
      ? [storage.shown, ...(isNew ? ['created'] : []), ...done]
      : [
          shownPath(directory),
          isNew ? 'created' : bytesInWords(statSync(storage.path).size),
          ...done,
          `${bytesInWords(freeBytesOf(directory))} free`,
        ];
  if (isShort) {
    say(`data     ${[...data, `config ${configuration ?? 'defaults'}`].join(' · ')}`);
    return;
  }
  say(`config   ${configuration ?? 'none found, defaults in use        (write one: npx tokenhouse init)'}`);
  say(`data     ${data.join(' · ')}`);
}

/** One line for each backend, when it is ready or has failed, or has been checked. */
async function modelLines(
  backend: Service['backends'][number],
  startedAt: number,
  log: Log,
  say: Say,
  endProgress: () => void,
): Promise<void> {
  if (backend.config.engine === 'openai' && backend.config.managed !== undefined) {
    const { start } = backend.config.managed;
    say(
      `model    ${backend.modelId} · ${backend.label} · its server is started ${start === 'at_start' ? 'now' : 'with its first request'}`,
    );
    return;
  }
  if (backend.config.engine === 'openai') {
    const look = await lookAtBackend({ id: backend.modelId, contextLength: backend.contextLength }, backend.config);
    reportLook(look, log);
    for (const line of lookLines(look)) say(line);
    return;
  }
  const name = `model    ${backend.modelId} · ${backend.label}`;
  try {
    await backend.ready;
    const file = await backend.modelFile;
    endProgress();
    if (file === undefined) say(`${name} · ready`);
    else {
      const size = bytesInWords(statSync(file.path).size);
      say(`${name} · ${size}, sha256 verified · ready after ${secondsInWords(performance.now() - startedAt)}`);
      for (const line of computeLines(backend)) say(line);
    }
  } catch (error) {
    endProgress();
    say(`${name} · not available, its requests get 503 no_healthy_backends`);
    if (error instanceof ModelFileError) {
      for (const attempt of error.attempts) say(`  why     ${attempt.source}: ${attempt.problem}`);
      say(`  repair  npx tokenhouse models pull ${backend.modelId}`);
      for (const remedy of error.remedies) say(`     or   ${remedy}`);
    } else {
      say(`  why     ${error instanceof Error ? error.message : String(error)}`);
      say('  repair  npx tokenhouse doctor');
    }
  }
}

/** What an embedded model runs on, if that is not just the processor. */
function computeLines({ modelId, compute: computeOf }: Service['backends'][number]): readonly string[] {
  const compute = computeOf();
  if (compute === undefined || !compute.isOfNote) return [];
  return [`gpu      ${modelId} · ${compute.with}${compute.note === undefined ? '' : `: ${compute.note}`}`];
}

function sayAddresses(config: Config, service: Service, isShort: boolean, elapsedMs: number, say: Say): void {
  const { inference, account } = config.server;
  const isLocal = isLocalOnly(inference) && isLocalOnly(account);
  const api = `API     ${service.inferenceUrl}/v1`;
  const errors = `Errors  ${service.accountUrl}/docs/errors`;
  const webConsole = consoleInWords(config, service);
  const ready = `ready in ${(elapsedMs / 1000).toFixed(1)} s`;
  if (isShort) {
    say(`${ready} · ${isLocal ? 'reachable from this computer only' : 'reachable from the network'}`);
    say(`  ${webConsole ?? errors}        ${api}`);
    return;
  }
  say(ready);
  if (webConsole !== undefined) say(`  ${webConsole}`);
  say(`  ${api}`);
  say(`  ${errors}`);
  say(
    isLocal
      ? 'note     reachable from this computer only; to publish set server.inference.host and public_url'
      : `note     reachable from the network: the API on ${inference.host}, the account host on ${account.host}`,
  );
}

/** The page to open first; undefined if the console is turned off. While it is being built, its address says so, and opens it then. */
function consoleInWords({ server: { account } }: Config, { accountUrl }: Service): string | undefined {
  if (!account.console) return undefined;
  if (!existsSync(consoleUrl())) return 'Console none in this copy (npm run build console)';
  const isBuilt = existsSync(new URL('manifest.json', consoleUrl()));
  return `Console ${accountUrl}${isBuilt ? '' : '  (being built; the page opens it by itself)'}`;
}

/** Printed while there is no operator: opening the link creates one. A log must not contain it either (`--no-key`). */
function sayOwnerLink(link: string, isShort: boolean, isShown: boolean, say: Say): void {
  if (!isShown)
    say('note     this server has no operator yet: npx tokenhouse owner link prints the link for its owner');
  else if (isShort) say(`  Owner   ${link}        (one use, 30 min)`);
  else {
    say('');
    say('Create the owner account (one use, 30 min; again with: npx tokenhouse owner link):');
    say('');
    say(`  ${link}`);
  }
}

/** The prompt of the first request: one that the default model answers well, pinned by a test. */
export const firstPrompt = 'What is the capital of France?';

function welcome(
  config: Config,
  service: Service,
  first: NonNullable<Service['firstAccount']>,
  showKey: boolean,
  say: Say,
): void {
  const model = (config.models.find(({ capabilities }) => capabilities.chat.supported) ?? config.models[0])?.id ?? '';
  say('');
  say(`The first account was created: ${first.accountId}, with ${dollars(first.creditMicrocents)} of credit.`);
  if (!showKey) {
    say('Its key is not shown (--no-key). Create another one with: npx tokenhouse keys create');
    return;
  }
  say(`Its key is shown only once; the database keeps only a keyed hash:`);
  say('');
  say(`  ${first.key}`);
  say('');
  say('Try it:');
  say('');
  say(curlLine(service.inferenceUrl, first.key, model));
  say('');
  say('or talk to it:  npx tokenhouse chat        (on this computer it needs no key)');
  say('');
  say('Then see what it cost:  npx tokenhouse usage');
  if (config.models.length > 1 || model !== defaultModels[0].id) return;
  say('');
  for (const line of offerOfBetterModels()) say(line);
}

/** A command to paste into a shell. */
function curlLine(inferenceUrl: string, key: string, model: string): string {
  const body = JSON.stringify({
    model,
    messages: [{ role: 'user', content: firstPrompt }],
    temperature: 0,
    stream: true,
  });
  return [
    `curl -N ${inferenceUrl}/v1/chat/completions \\`,
    `  -H "Authorization: Bearer ${key}" \\`,
    '  -H "Content-Type: application/json" \\',
    `  -d '${body}'`,
  ].join('\n');
}

/**
 * SIGHUP has two meanings: "read the configuration again" from an operator, and "your terminal is gone" from the system, which
 * gracefully ends a service started by hand.
 */
function onHangup(reload: () => void, stop: () => void): void {
  if (process.platform === 'win32') return;
  const hadTerminal = hasTerminal();
  process.on('SIGHUP', () => (hadTerminal && !hasTerminal() ? stop() : reload()));
}

function hasTerminal(): boolean {
  try {
    closeSync(openSync('/dev/tty', 'r'));
    return true;
  } catch {
    return false;
  }
}

function stopText({ server }: Config): string {
  const seconds = server.limits.drainDelayMs / 1_000;
  const when = seconds === 0 ? '' : ` in ${seconds} s, /readyz says so now`;
  return `new requests are refused${when}, running ones may finish`;
}

interface StopSignals {
  readonly requested: Promise<void>;
  wasRequested(): boolean;
  now(): void;
  /** Acts like a signal, except that a later signal does not count as the second one. */
  crashed(): void;
}

/** SIGTERM and SIGINT end the service gracefully; a second one ends it immediately (reliability S7). */
function stopSignals(): StopSignals {
  let resolve: () => void = () => {};
  let count = 0;
  let requestedOnce = false;
  const requested = new Promise<void>((done) => {
    resolve = done;
  });
  const request = (): void => {
    requestedOnce = true;
    resolve();
  };
  const now = (): void => {
    count++;
    if (count > 1) process.exit(130);
    request();
  };
  process.on('SIGTERM', now).on('SIGINT', now);
  return { requested, wasRequested: () => requestedOnce, now, crashed: request };
}
