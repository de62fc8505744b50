import { createOpenAiEngine } from '../../../../src/inference/engines/openai/openai-engine.ts';
import { chatChunk, event, Upstream, usageChunk, type UpstreamExchange } from '../../../support/upstream.ts';
import { engineContract, engineRequest } from '../contract.ts';

engineContract('the openai engine', async () => {
  let working = 0;
  const upstream = await Upstream.start((exchange) => {
    working++;
    void exchange.closed.then(() => {
      if (isRunning) working--;
    });
    let isRunning = true;
    const end = (): void => {
      isRunning = false;
      working--;
    };
    answer(exchange, end);
  });
  const engine = createOpenAiEngine({ name: 'm', url: upstream.url, flavor: 'vllm' });
  return {
    engine,
    brief: engineRequest('brief'),
    twoChoices: engineRequest('brief', { choices: 2 }),
    endless: engineRequest('endless'),
    silent: engineRequest('silent'),
    broken: engineRequest('broken'),
    working: () => working,
    dispose: async () => {
      await engine.close();
      await upstream.close();
    },
  };
});

function answer(exchange: UpstreamExchange, end: () => void): void {
  const body = JSON.parse(exchange.body) as { messages?: { content: string }[]; n?: number };
  if (exchange.path === '/tokenize') {
    exchange.json(200, { count: 7, tokens: [1, 2, 3, 4, 5, 6, 7] });
    return end();
  }
  exchange.events();
  switch (body.messages?.at(-1)?.content ?? '') {
    case 'brief': {
      for (const text of ['Hello', ' you']) {
        for (let index = 0; index < (body.n ?? 1); index++) exchange.chunk(choiceChunk(index, { content: text }, null));
      }
      for (let index = 0; index < (body.n ?? 1); index++) exchange.chunk(choiceChunk(index, {}, 'stop'));
      exchange.chunk(usageChunk({ prompt_tokens: 7, completion_tokens: 2 * (body.n ?? 1) }));
      exchange.chunk(event('[DONE]'));
      exchange.endChunks();
      return end();
    }
    case 'endless': {
      const timer = setInterval(() => exchange.chunk(chatChunk({ content: 'again ' })), 2);
      void exchange.closed.then(() => clearInterval(timer));
      return;
    }
    case 'silent':
      return exchange.chunk(chatChunk({ role: 'assistant', content: null }));
    case 'broken':
      exchange.chunk(chatChunk({ content: 'one ' }));
      exchange.endChunks();
      return end();
  }
}

function choiceChunk(index: number, delta: object, finishReason: string | null): string {
  return event({ choices: [{ index, delta, finish_reason: finishReason }] });
}
