/**
 * The build for Vulkan, as the command fetches it, behind the service: on lavapipe, whose driver is taken away like a GPU that is lost.
 */
import assert from 'node:assert/strict';
import { copyFileSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { defaultModels } from '../../../src/config/defaults.ts';
import { engineVersion } from '../../../src/inference/engine-builds/builds.ts';
import { runProcess } from '../../support/command.ts';
import { TestService, until } from '../../support/service.ts';
import { writeTinyGguf } from '../../support/tiny-gguf.ts';
import { sha256Of } from '../../support/folder.ts';

const lavapipe = process.env['TOKENHOUSE_TEST_LAVAPIPE'] ?? '';
const folder = mkdtempSync(join(tmpdir(), 'tokenhouse-gpu-'));
const models = join(folder, 'models');
const driver = join(folder, 'driver.json');
after(() => rmSync(folder, { recursive: true, force: true }));

/** Without this variable ggml takes no device that is a processor. */
const variables = {
  ...{ TOKENHOUSE_MODEL_DIR: models, VK_DRIVER_FILES: driver, VK_ICD_FILENAMES: driver },
  GGML_VK_VISIBLE_DEVICES: '0',
};
const patienceMs = 120_000;

const words = Array.from({ length: 400 }, (_, index) => ` w${index}`);
const modelFile = join(folder, 'words.gguf');
writeTinyGguf(modelFile, { script: [['assistant\n', ...words, '<|im_end|>']], contextLength: 1024 });
const sha256 = sha256Of(modelFile);

const tiny = (id: string, gpu: string | number): string => `  - id: ${id}
    context_length: 1024
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: llama, sources: [ "file:${modelFile}" ], sha256: ${sha256}, slots: 1, threads: 1, gpu: ${gpu} } ]`;

const command = (...args: string[]) => runProcess(folder, args, variables);

async function serviceOf(config: string): Promise<TestService> {
  const service = new TestService({
    config,
    limits: '  first_token_timeout_seconds: 600\n  stream_idle_timeout_seconds: 600',
    environment: variables,
  });
  await service.start();
  return service;
}

const eventsOf = (service: TestService, event: string, model: string) =>
  service.log.filter((line) => line['event'] === `llama_${event}` && line['model'] === model);

async function ask(service: TestService, model: string, maxTokens: number, content = 'Hi') {
  const body = { model, messages: [{ role: 'user', content }], max_tokens: maxTokens, temperature: 0 };
  const response = await service.chat(body);
  const answer = (await response.json()) as { choices?: readonly { message: { content: string } }[] };
  return { status: response.status, text: answer.choices?.[0]?.message.content, answer };
}

before(
  async () => {
    copyFileSync(lavapipe, driver);
    const { code, stdout, stderr } = await command('engine', 'install', 'vulkan', '--json');
    assert.equal(code, 0, stderr);
    const { folder: target, already_there: there, devices } = JSON.parse(stdout) as Record<string, unknown>;
    assert.deepEqual([target, there], [join(models, '.engine', engineVersion, 'vulkan'), false]);
    assert.match(String(devices), /^llvmpipe/);
  },
  { timeout: 600_000 },
);

describe('what is installed', { timeout: 600_000 }, () => {
  test('is there once, is listed, and is said by doctor', async () => {
    const again = await command('engine', 'install', 'vulkan');
    assert.match(again.stdout, /^Vulkan: already installed in /);
    const { stdout } = await command('engine');
    assert.match(stdout, /^processor +comes with the program /m);
    assert.match(stdout, /^cuda +not installed /m);
    assert.match(stdout, /^vulkan +installed +[\d.]+ +84\.5 MB +llvmpipe \(/m);
  });

  test('sees no device without a driver', async () => {
    const nothing = join(folder, 'none.json');
    const { stdout } = await runProcess(folder, ['engine', 'list', '--json'], {
      ...variables,
      ...{ VK_DRIVER_FILES: nothing, VK_ICD_FILENAMES: nothing },
    });
    const listed = JSON.parse(stdout) as readonly { readonly kind: string; readonly devices: string | null }[];
    const devices = listed.find(({ kind }) => kind === 'vulkan')?.devices ?? '';
    assert.match(devices, /^(none|cannot be used: .+)$/);
  });
});

describe('models on it', { timeout: 900_000 }, () => {
  let service: TestService;
  before(async () => {
    service = await serviceOf(`models:\n${tiny('some', 2)}\n${tiny('choosing', 'auto')}\n${tiny('plain', 'off')}`);
    for (const model of ['some', 'choosing', 'plain'])
      await until(() => eventsOf(service, 'ready', model).length > 0, patienceMs);
  });
  after(() => service.dispose());

  test('answer the same as the processor, through the service', async () => {
    for (const model of ['some', 'choosing', 'plain']) {
      const { status, text } = await ask(service, model, 20);
      assert.deepEqual([model, status, text], [model, 200, words.slice(0, 20).join('')]);
    }
  });

  test('only layers that are asked for go to a software device, and the log says so', () => {
    const [some] = eventsOf(service, 'computes', 'some');
    assert.match(String(some?.['with']), /^Vulkan on llvmpipe \(.*\), 2 of \d+ layers$/);
    const { gpu, gpuLayers } = eventsOf(service, 'ready', 'some')[0]!;
    assert.deepEqual([gpu, gpuLayers], ['vulkan', 2]);
    const [choosing] = eventsOf(service, 'computes', 'choosing');
    assert.equal(choosing?.['with'], 'the processor');
    assert.match(
      String(choosing?.['reason']),
      /^llvmpipe .* computes with the processor, and is used only where gpu is a number/,
    );
    assert.deepEqual(eventsOf(service, 'computes', 'plain'), []);
    for (const model of ['choosing', 'plain']) assert.equal(eventsOf(service, 'ready', model)[0]?.['gpu'], 'none');
  });

  test('the start and doctor say what is used', async () => {
    await until(() => /^gpu +some · Vulkan on llvmpipe \(.*\), 2 of \d+ layers$/m.test(service.output), patienceMs);
    assert.match(service.output, /^gpu +choosing · the processor: llvmpipe /m);
    assert.doesNotMatch(service.output, /^gpu +plain/m);
    const { stdout } = await service.command('doctor');
    assert.match(stdout, /^ok +gpu +Vulkan · llvmpipe \(.*\) · .* free · computes with the processor/m);
    assert.match(stdout, /^ok +gpu +some · computed by Vulkan on llvmpipe/m);
  });
});

describe('a GPU that is lost', { timeout: 900_000 }, () => {
  let service: TestService;
  before(async () => {
    copyFileSync(lavapipe, driver);
    service = await serviceOf(`models:\n${tiny('some', 2)}`);
    await until(() => eventsOf(service, 'ready', 'some').length > 0, patienceMs);
  });
  after(() => service.dispose());

  test('takes along the answer that it was writing, and no request that had none yet; the processor goes on', async () => {
    const pid = Number(eventsOf(service, 'ready', 'some')[0]?.['pid']);
    const body = { model: 'some', messages: [{ role: 'user', content: 'Hi' }], temperature: 0, stream: true };
    const running = await service.chat({ ...body, max_tokens: 400 });
    const reader = running.body!.getReader();
    await reader.read();
    // In the child, behind the one that has its only place.
    const waiting = [ask(service, 'some', 5), ask(service, 'some', 6)];
    await until(async () => (await waitingIn(service)) >= 2, patienceMs);
    process.kill(pid, 'SIGSTOP');
    rmSync(driver);
    process.kill(pid, 'SIGABRT');
    process.kill(pid, 'SIGCONT');
    const answers = await Promise.all(waiting);
    assert.deepEqual(
      answers.map(({ text }) => text),
      [words.slice(0, 5).join(''), words.slice(0, 6).join('')],
    );
    const decoder = new TextDecoder();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      rest += decoder.decode(value as Uint8Array);
    }
    assert.match(rest, /"code":"backend_http_error"|\[DONE\]/);
    const lost = eventsOf(service, 'gpu-lost', 'some').map(({ next }) => next);
    assert.deepEqual(lost, ['gpu', 'processor']);
    assert.equal(eventsOf(service, 'ready', 'some').at(-1)?.['gpu'], 'none');
    assert.equal((await ask(service, 'some', 3)).text, words.slice(0, 3).join(''));
    await service.verify();
  });

  test('is said by doctor, while the service runs', async () => {
    const { stdout } = await service.command('doctor');
    assert.match(stdout, /^ok +gpu +some · computed by the processor: Vulkan on llvmpipe .* failed: /m);
  });

  test('is not waited for by the next start', async () => {
    await service.stop();
    await service.start();
    await until(() => eventsOf(service, 'ready', 'some').at(-1)?.['gpu'] === 'none', patienceMs);
    assert.equal((await ask(service, 'some', 3)).text, words.slice(0, 3).join(''));
  });
});

/** Requests that wait for a place in an embedded model, by its metrics. */
async function waitingIn(service: TestService): Promise<number> {
  const text = await (await fetch(`${service.accountUrl}/metrics`)).text();
  return Number(/^tokenhouse_backend_waiting\{[^}]*\} (\d+)/m.exec(text)?.[1] ?? 0);
}

describe('the default model', { timeout: 1_800_000 }, () => {
  test('knows the capital of France with all of its layers on the device', async () => {
    copyFileSync(lavapipe, driver);
    const own = join(homedir(), '.cache', 'tokenhouse', 'models', 'SmolLM2-135M-Instruct.Q4_1.gguf');
    const [model] = defaultModels;
    const [backend] = model.backends;
    const sources = [...(existsSync(own) ? [own] : []), ...backend.sources];
    const written = { ...model, backends: [{ ...backend, sources, slots: 1, gpu: 99 }] };
    const service = await serviceOf(`models:\n  - ${JSON.stringify(written)}`);
    try {
      await until(() => eventsOf(service, 'ready', model.id).length > 0, patienceMs);
      assert.equal(eventsOf(service, 'ready', model.id)[0]?.['gpuLayers'], 31);
      const { status, text } = await ask(service, model.id, 8, 'What is the capital of France?');
      assert.deepEqual([status, /Paris/.test(text ?? '')], [200, true], text);
    } finally {
      await service.dispose();
    }
  });
});

describe('the build for CUDA', { timeout: 1_200_000 }, () => {
  test('is fetched whole, loads, and is not used where there is no GPU of NVIDIA', async () => {
    const { code, stdout, stderr } = await command('engine', 'install', 'cuda', '--json');
    assert.equal(code, 0, stderr);
    const { devices, bytes } = JSON.parse(stdout) as Record<string, unknown>;
    assert.deepEqual([devices, bytes], ['none', 562_891_833]);
    const service = await serviceOf(`models:\n${tiny('choosing', 'auto')}`);
    try {
      await until(() => eventsOf(service, 'ready', 'choosing').length > 0, patienceMs);
      assert.equal(eventsOf(service, 'ready', 'choosing')[0]?.['gpu'], 'none');
      const [choosing] = eventsOf(service, 'computes', 'choosing');
      assert.match(String(choosing?.['reason']), /^llvmpipe .* computes with the processor/);
      assert.equal((await ask(service, 'choosing', 3)).text, words.slice(0, 3).join(''));
      const { stdout: report } = await service.command('doctor');
      assert.match(report, /^warning +gpu +CUDA · finds no device$/m);
    } finally {
      await service.dispose();
    }
    assert.match((await command('engine', 'remove', 'cuda')).stdout, /^CUDA: removed from .* \(562\.9 MB\)$/m);
  });
});

describe('removal', () => {
  test('leaves nothing', async () => {
    const { stdout } = await command('engine', 'remove', 'vulkan');
    assert.match(stdout, /^Vulkan: removed from .* \(84\.5 MB\)$/m);
    assert.ok(!existsSync(join(models, '.engine', engineVersion, 'vulkan')));
    assert.match((await command('engine', 'remove', 'vulkan')).stdout, /^Vulkan: was not installed$/m);
  });
});
