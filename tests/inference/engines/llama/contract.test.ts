import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';
import { createLlamaEngine, type LlamaEngine } from '../../../../src/inference/engines/llama/engine.ts';
import { writeTinyGguf } from '../../../support/tiny-gguf.ts';
import { engineContract, engineRequest } from '../contract.ts';
import { says, until, words } from './support.ts';

const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-contract-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const modelFile = join(folder, 'model.gguf');
// Wide enough that 4,000 tokens take far longer than an abort.
writeTinyGguf(modelFile, { script: says(...words(3000)), dimensions: 128 });

let shared: LlamaEngine | undefined;
after(() => shared?.close());

const greedy = { ...engineRequest('').sampling, temperature: 0 };

engineContract(
  'the embedded engine',
  async () => {
    // Loading takes seconds where much else runs, so the engine is shared until a test closes it.
    const engine = (shared ??= createLlamaEngine({
      name: 'tiny',
      modelFile: Promise.resolve(modelFile),
      contextLength: 4096,
      slots: 2,
      defaultSystem: 'template',
      log: () => {},
    }));
    await engine.ready;
    // One test ends the child, and the next waits for another one.
    await until(() => engine.status().state === 'ready', 'the engine is ready');
    return {
      engine,
      brief: engineRequest('Hi', { maxTokens: 8, sampling: greedy }),
      twoChoices: engineRequest('Hi', { maxTokens: 8, sampling: greedy, choices: 2 }),
      endless: engineRequest('Hi', { maxTokens: 3000, sampling: greedy }),
      // A prompt that takes dozens of steps to read.
      silent: engineRequest('a 1 b 2 '.repeat(450), { maxTokens: 8 }),
      broken: engineRequest('Hi', { maxTokens: 3000, sampling: greedy }),
      breakBackend: () => {
        assert.ok(engine.pid !== undefined);
        process.kill(engine.pid, 'SIGKILL');
      },
      working: async () => (await engine.measure()).working,
      dispose: async () => {},
    };
  },
  // One prefill chunk takes 50 ms where nothing else runs; a busy machine is given twenty times that.
  1000,
);
