// Alone in its process: it counts the timers, descriptors and children of the process.
/** Reloading again and again leaves no process, socket, timer or thread behind (invariant I8). */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { loadConfig } from '../../../src/config/load.ts';
import { readEnvironment } from '../../../src/config/environment.ts';
import { entryUrl } from '../../../src/platform/entries.ts';
import { scriptSchema } from '../../../src/inference/engines/scripted/script-schema.ts';
import { createLog } from '../../../src/platform/log.ts';
import { startService } from '../../../src/app/start.ts';
import { until } from '../../support/service.ts';
import { writeTinyGguf } from '../../support/tiny-gguf.ts';
import { Upstream, chatChunk, usageChunk } from '../../support/upstream.ts';
import { ask, demo, models } from './scene.ts';
import { sha256Of } from '../../support/folder.ts';

const rounds = 50;
/** Rounds in which the embedded engine is another one too, which takes a new process each. */
const processRounds = 4;

test(`${rounds} reloads leave nothing behind`, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-reload-'));
  const modelFile = join(folder, 'tiny.gguf');
  writeTinyGguf(modelFile);
  const sha256 = sha256Of(modelFile);
  const upstream = await Upstream.start((request) => {
    request.events();
    request.chunk(chatChunk({ role: 'assistant', content: 'one ' }));
    request.chunk(chatChunk({}, 'stop'));
    request.chunk(usageChunk({ prompt_tokens: 7, completion_tokens: 2, total_tokens: 9 }));
    request.chunk('data: [DONE]\n\n');
    request.endChunks();
  });
  t.after(() => upstream.close());

  const configFile = join(folder, 'tokenhouse.yaml');
  const configure = (round: number, processRound: number): void => {
    const far = `      - { engine: openai, name: far-${round % 2}, flavor: openai, url: "${upstream.url}", max_concurrency: ${10 + round} }`;
    const near = `      - { engine: llama, sources: [ "file:./tiny.gguf" ], sha256: ${sha256}, queue: ${10 + processRound} }`;
    writeFileSync(
      configFile,
      `server: { inference: { port: 0 }, account: { port: 0 } }\n${models(
        demo({ input: 5 + round }),
        demo({ id: 'far', backends: far }),
        demo({ id: 'near', backends: near }).replace('8192', '4096'),
        demo({ id: `passing-${round}` }),
      )}\n`,
    );
  };
  configure(0, 0);
  const environment = readEnvironment({ HOME: folder, TOKENHOUSE_MODEL_DIR: join(folder, 'models') });
  const options = { environment, path: configFile, directory: folder, scriptSchema };
  const lines: string[] = [];
  const service = await startService({
    workerEntry: entryUrl('serve-worker'),
    config: loadConfig(options),
    environment,
    version: 'test',
    readConfig: (running) => loadConfig({ ...options, running }),
    configFile,
    log: createLog({ write: (text) => lines.push(text) > 0, once: () => undefined }),
    onFatal: (error) => assert.fail(error),
    onDownload: () => {},
  });
  // In this order: a database that is deleted under its service would hide what has failed.
  t.after(() => service.stop());
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  await Promise.all(service.backends.map(({ ready }) => ready));
  const key = service.firstAccount?.key ?? '';
  const use = async (model: string): Promise<void> => {
    const answer = await fetch(`${service.inferenceUrl}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...ask('hi', { max_tokens: 2 }), model }),
    });
    assert.equal(answer.status, 200, await answer.text());
  };
  const round = async (index: number, processRound: number): Promise<void> => {
    configure(index, processRound);
    const outcome = await service.reload();
    assert.equal(outcome.kind, 'reloaded', JSON.stringify(outcome));
    await use('far');
    await use(`passing-${index}`);
  };

  // Caches and pools of the platform are filled by the first rounds.
  for (let index = 1; index <= 3; index++) await round(index, 0);
  await use('near');
  const before = census();
  assert.equal(before.children, 1, 'the engine of `near`');
  for (let index = 4; index <= rounds; index++) await round(index, Math.min(index - 3, processRounds));
  await use('near');
  // What was let go is gone a little later.
  let after = census();
  await until(() => {
    after = census();
    return (
      after.children <= 1 &&
      upstream.open <= 1 &&
      after.timers <= before.timers &&
      after.descriptors <= before.descriptors
    );
  }, 60_000).catch(() =>
    assert.fail(`before ${JSON.stringify(before)}, after ${JSON.stringify(after)}, upstream ${upstream.open}`),
  );
  assert.equal(lines.join('').split('"config_reloaded"').length - 1, rounds);
});

/** What this process has, the service in it included. */
function census() {
  const active = process.getActiveResourcesInfo();
  const self = `/proc/${process.pid}`;
  const isLinux = existsSync(self);
  return {
    timers: active.filter((name) => name === 'Timeout' || name === 'Immediate').length,
    descriptors: isLinux ? readdirSync(`${self}/fd`).length : 0,
    children: isLinux ? childrenOf(self) : 1,
  };
}

const childrenOf = (self: string): number =>
  readdirSync(`${self}/task`)
    .flatMap((task) => readFileSync(`${self}/task/${task}/children`, 'utf8').split(' '))
    .filter((pid) => pid !== '').length;
