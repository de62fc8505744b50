import assert from 'node:assert/strict';

import { InnerService, until } from '../support/service.ts';
import type { UsageLine, TestService } from '../support/service.ts';
import { Upstream, chatChunk } from '../support/upstream.ts';

/** A service in front of a backend of ours, which says two words and then nothing until its client leaves. */
export class ServiceOnUpstream {
  #service: TestService | undefined;
  #upstream: Upstream | undefined;

  get service(): TestService {
    assert.ok(this.#service);
    return this.#service;
  }

  get upstream(): Upstream {
    assert.ok(this.#upstream);
    return this.#upstream;
  }

  async start(): Promise<void> {
    this.#upstream = await Upstream.start((request) => {
      if (request.method !== 'POST') return request.json(404, {});
      request.events();
      request.chunk(chatChunk({ role: 'assistant', content: '' }));
      request.chunk(chatChunk({ content: 'one' }));
      request.chunk(chatChunk({ content: ' two' }));
    });
    this.#service = new InnerService({
      config: `models:
  - id: far
    context_length: 8192
    pricing: { input_cents_per_million: 5, output_cents_per_million: 20 }
    backends: [ { engine: openai, flavor: openai, url: "${this.#upstream.url}" } ]`,
    });
    await this.#service.start();
  }

  /** The receipt of the newest request, when the backend has seen its connection closed and the charge is durable. */
  async endingOfLast(): Promise<UsageLine> {
    const asked = this.upstream.exchanges.filter((exchange) => exchange.method === 'POST');
    await asked.at(-1)?.closed;
    let newest: readonly UsageLine[] = [];
    await until(async () => (newest = (await this.service.usage()).requests).length === asked.length);
    assert.ok(newest[0]);
    return newest[0];
  }

  async dispose(): Promise<void> {
    await this.service.verify();
    await this.service.dispose();
    await this.upstream.close();
  }
}
