import path from 'node:path';

import { createLog } from '../log.ts';
import { ModelFileError } from '../model-files/problem.ts';
import { progressDisplay } from '../model-files/progress.ts';
import { startService } from '../services.ts';
import type { Service } from '../services.ts';
import type { Context } from './context.ts';
import { explain } from './failure.ts';
import { cents } from './output.ts';
import { version } from './version.ts';

/** `tokenhouse serve`: runs until a signal. Talk goes to standard error, the log (JSON lines) to standard output. */
export async function serveCommand(context: Context, options: { readonly key: boolean }): Promise<number> {
  const { config, environment, print } = context;
  const startedAt = performance.now();
  print.say(`Tokenhouse ${version} · node ${process.versions.node} · one process, SQLite · no telemetry`);
  print.say(`config   ${config.file ?? 'none found, defaults in use'}`);
  print.say(`data     ${path.relative(process.cwd(), config.storage.directory) || '.'}`);
  for (const { where, what } of environment.warnings) print.say(`note     ${where}: ${what}`);

  const stop = stopSignals();
  const display = progressDisplay(process.stderr);
  let fatal: Error | undefined;
  const service = await startService({
    config,
    environment,
    log: createLog(process.stdout),
    onFatal: (error) => {
      fatal = error;
      stop.now();
    },
    onDownload: (_model, progress) => display.show(progress),
  });
  const models = Promise.all(service.backends.map((backend) => modelLine(backend, print.say, display.end)));
  await Promise.race([models, stop.requested]);
  if (!stop.wasRequested()) welcome(context, service, options.key, performance.now() - startedAt);
  await stop.requested;
  print.say('stopping: no new requests; those that run may finish');
  await service.stop();
  if (fatal === undefined) return 0;
  explain(fatal, print);
  return 69;
}

/** One line for each backend, when it is ready or will not be. */
async function modelLine(
  backend: Service['backends'][number],
  say: (line: string) => void,
  endProgress: () => void,
): Promise<void> {
  try {
    await backend.ready;
    endProgress();
    say(`model    ${backend.modelId} · ${backend.label} · ${backend.address ?? 'ready'}`);
  } catch (error) {
    endProgress();
    say(`model    ${backend.modelId} · ${backend.label} · not available, its requests get 503 no_healthy_backends`);
    if (error instanceof ModelFileError) {
      for (const attempt of error.attempts) say(`           ${attempt.source}: ${attempt.problem}`);
      for (const remedy of error.remedies) say(`         → ${remedy}`);
    } else {
      say(`           ${error instanceof Error ? error.message : String(error)}`);
    }
  }
}

/** The prompt of the first request: one that the default model answers well, pinned by a test. */
export const firstPrompt = 'What is the capital of France?';

function welcome({ config, print }: Context, service: Service, showKey: boolean, elapsedMs: number): void {
  print.say(`ready in ${(elapsedMs / 1000).toFixed(1)} s`);
  print.say(`  API     ${service.inferenceUrl}/v1`);
  print.say(`  Errors  ${service.accountUrl}/docs/errors`);
  const first = service.firstAccount;
  if (first === undefined) return;
  const model = config.models[0]?.id ?? '';
  print.say('');
  print.say(`A first account has been made: ${first.accountId}, with ${cents(first.creditMicrocents)} of credit.`);
  if (!showKey) {
    print.say('Its key is not shown (--no-key). Make another one with: npx tokenhouse keys create');
    return;
  }
  print.say(`Its key is shown this once; the database keeps only a keyed hash:`);
  print.say('');
  print.say(`  ${first.key}`);
  print.say('');
  print.say('Try it:');
  print.say('');
  print.say(curlLine(service.inferenceUrl, first.key, model));
  print.say('');
  print.say('Then see what it cost:  npx tokenhouse usage');
}

/** Ready to be pasted into a shell. */
export function curlLine(inferenceUrl: string, key: string, model: string): string {
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

interface StopSignals {
  readonly requested: Promise<void>;
  wasRequested(): boolean;
  now(): void;
}

/** SIGTERM and SIGINT end the service in order; a second one ends it at once (reliability S7). */
function stopSignals(): StopSignals {
  let resolve: () => void = () => {};
  let count = 0;
  const requested = new Promise<void>((done) => {
    resolve = done;
  });
  const now = (): void => {
    count++;
    if (count > 1) process.exit(130);
    resolve();
  };
  process.on('SIGTERM', now).on('SIGINT', now);
  return { requested, wasRequested: () => count > 0, now };
}
