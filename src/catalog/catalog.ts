import type { Model } from './model.ts';

/** The models of the service. Ids match case-insensitively (specification §2.2). */
export class Catalog {
  readonly models: readonly Model[];
  readonly #byId: ReadonlyMap<string, Model>;

  constructor(models: readonly Model[]) {
    this.models = models;
    this.#byId = new Map(models.map((model) => [model.id.toLowerCase(), model]));
    if (this.#byId.size !== models.length) throw new Error('two models have the same id');
  }

  find(id: string): Model | undefined {
    return this.#byId.get(id) ?? this.#byId.get(id.toLowerCase());
  }
}
