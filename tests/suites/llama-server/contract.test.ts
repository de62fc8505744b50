/** The promises of an engine, kept on a real llama-server (`src/inference/engines/engine.ts`). */
import { after } from 'node:test';

import { createOpenAiEngine } from '../../../src/inference/engines/openai/openai-engine.ts';
import type { EngineRequest } from '../../../src/generation/request.ts';
import { engineContract, engineRequest } from '../../inference/engines/contract.ts';
import { until } from '../../support/service.ts';
import { LlamaServer, TinyModels, scriptedTiny, stopServer } from './llama-server.ts';

const models = new TinyModels();
let server: LlamaServer | undefined;
after(async () => {
  await stopServer(server);
  models.dispose();
});

const request = (chain: string, more: Partial<EngineRequest> = {}): EngineRequest =>
  engineRequest(chain, { sampling: { ...engineRequest('').sampling, temperature: 0 }, ...more });

/** Half a minute of writing fits the context, and no test waits so long. */
const contextLength = 65_536;

engineContract(
  'the HTTP engine on llama-server',
  async () => {
    server ??= await LlamaServer.start({ modelFile: models.write('contract', scriptedTiny), slots: 4, contextLength });
    const { url } = server;
    const working = () => server?.working() ?? 0;
    const engine = createOpenAiEngine({ name: 'tiny', url, flavor: 'llama-server' });
    return {
      engine,
      brief: request('<brief>'),
      twoChoices: request('<brief>', { choices: 2 }),
      endless: request('<endless>'),
      silent: request('<silent>'),
      // A server that dies under an answer is in service.test.ts.
      broken: undefined,
      working,
      dispose: async () => {
        await engine.close();
        // The next engine finds a server at rest.
        await until(async () => (await working()) === 0, 30_000);
      },
    };
  },
  // It looks at its connections between two steps; on a machine with other work a step may wait long for its turn.
  5_000,
);
