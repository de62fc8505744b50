import type { Model } from './model.ts';

/** The models of the service. Ids match case-insensitively (specification §2.2). */
export class Catalog {
  readonly #entries: readonly Entry[];
  readonly #byId: ReadonlyMap<string, Entry>;
  readonly #byName: ReadonlyMap<string, Entry>;

  constructor(models: readonly Model[]) {
    this.#entries = models.map((model) => ({ model, retiresAt: retirementOf(model) }));
    this.#byId = new Map(this.#entries.map((entry) => [entry.model.id.toLowerCase(), entry]));
    if (this.#byId.size !== models.length) throw new Error('two models have the same id');
    this.#byName = new Map([
      ...this.#entries.flatMap((entry) =>
        (entry.model.aliases ?? []).map(({ name }): [string, Entry] => [name.toLowerCase(), entry]),
      ),
      ...this.#byId,
    ]);
  }

  /** The models that exist at a time, in milliseconds since 1970. */
  modelsAt(time: number): readonly Model[] {
    return this.#entries.filter(({ retiresAt }) => time < retiresAt).map(({ model }) => model);
  }

  /**
   * Finds a model by its id or another name; `isRetired` if it was retired by that time. The names of a retired model may lead to its
   * successor, and from there on.
   */
  find(name: string, time: number): { readonly model: Model; readonly isRetired: boolean } | undefined {
    let entry = this.#byName.get(name.toLowerCase());
    for (let steps = 0; entry !== undefined && time >= entry.retiresAt && steps < this.#entries.length; steps++) {
      const { successor, leadsToSuccessor } = entry.model;
      const next = leadsToSuccessor === true ? this.#byId.get(successor?.toLowerCase() ?? '') : undefined;
      if (next === undefined) break;
      entry = next;
    }
    return entry === undefined ? undefined : { model: entry.model, isRetired: time >= entry.retiresAt };
  }
}

interface Entry {
  readonly model: Model;
  readonly retiresAt: number;
}

/** When the model is retired, in milliseconds since 1970: 00:00:00 UTC of the day (specification part 3, contracts decision 25). */
export const retirementOf = ({ deprecationDate }: Pick<Model, 'deprecationDate'>): number =>
  deprecationDate === undefined ? Infinity : Date.parse(`${deprecationDate}T00:00:00Z`);
