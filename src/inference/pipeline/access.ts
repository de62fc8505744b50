import { isEntitled } from '../../accounts/directory.ts';
import type { Caller } from '../../accounts/directory.ts';
import type { AccountAlias } from '../../accounts/account-aliases.ts';
import type { Catalog } from '../../catalog/catalog.ts';
import { underItsNames, underName, type Model } from '../../catalog/model.ts';
import { ApiError } from '../../platform/errors.ts';

/** The origin of a request, and the endpoint that it is for. */
export interface Origin {
  /** The URL's path. */
  readonly path: string;
  /** The client's address: the connection's peer, or what a trusted proxy reports. */
  readonly address: string | undefined;
}

/**
 * Specification §5.5: the key's restrictions; a management key makes no requests (contracts.md, section 2). Throws `http_403`.
 */
export function checkAccess({ key }: Caller, { path, address }: Origin): void {
  if (key.isManagement === true)
    throw new ApiError('http_403', 'This is a management key, for the account host. Inference needs an inference key.');
  if (key.access === undefined) return;
  if (!key.access.mayComeFrom(address))
    throw new ApiError('http_403', 'This key may not be used from the address that the request comes from.');
  if (!key.access.mayUse(path)) throw new ApiError('http_403', `This key may not use ${path}.`);
}

/** The models that a caller can use now, and thus sees; without a key, every model that is not dedicated (specification §5.6). */
export function usableModels(caller: Caller | undefined, catalog: Catalog, time: number): readonly Model[] {
  return catalog
    .modelsAt(time)
    .filter((model) => isShownTo(model, caller) && (caller === undefined || isEntitled(caller, model.id)));
}

/** The cards of a caller: the models that it can use, under the names that are listed, of the configuration and of its account. */
export function cardsOf(caller: Caller | undefined, catalog: Catalog, time: number): readonly Model[] {
  const usable = usableModels(caller, catalog, time);
  const cards = usable.flatMap(underItsNames);
  for (const { name, model: id, listed } of caller?.account.aliases?.values() ?? []) {
    const model = usable.find((each) => each.id.toLowerCase() === id.toLowerCase());
    if (listed && model !== undefined && findIn(catalog, name, caller, time) === undefined)
      cards.push(underName(model, name));
  }
  return cards;
}

/** A name that only the caller's account has. Names of the configuration that the caller can see go first. */
export const ownName = (name: string, caller: Caller, catalog: Catalog, time: number): AccountAlias | undefined =>
  caller.account.aliases === undefined || findIn(catalog, name, caller, time) !== undefined
    ? undefined
    : caller.account.aliases.get(name.toLowerCase());

function findIn(catalog: Catalog, name: string, caller: Caller | undefined, time: number): ReturnType<Catalog['find']> {
  const found = catalog.find(name, time);
  return found !== undefined && isShownTo(found.model, caller) ? found : undefined;
}

/** What a name stands for: in the configuration, else in the caller's account. */
function findFor(name: string, caller: Caller, catalog: Catalog, time: number): ReturnType<Catalog['find']> {
  const found = findIn(catalog, name, caller, time);
  if (found !== undefined || caller.account.aliases === undefined) return found;
  const own = caller.account.aliases.get(name.toLowerCase());
  return own === undefined ? undefined : findIn(catalog, own.model, caller, time);
}

/** A model dedicated to others does not exist for a caller: its name may reveal its owner. */
const isShownTo = ({ dedicatedTo }: Model, caller: Caller | undefined): boolean =>
  dedicatedTo === undefined || (caller !== undefined && dedicatedTo.has(caller.account.id));

/**
 * Returns the model that a request names: 404 when it does not exist or has been retired; 403 when this key may not use it (specification
 * §5.5, §7.2). The message lists what the key can use (§5.6).
 */
export function modelFor(id: string, caller: Caller, catalog: Catalog, time: number): Model {
  const found = findFor(id, caller, catalog, time);
  const named = id.slice(0, idLengthShown);
  const usable = (): string => listed(usableModels(caller, catalog, time));
  if (found === undefined)
    throw new ApiError('model_not_found', `No model '${named}'. ${usable()}`, { param: 'model' });
  const { model, isRetired } = found;
  if (isRetired)
    throw new ApiError('model_not_found', `The model '${named}' has been retired. ${usable()}`, { param: 'model' });
  if (isEntitled(caller, model.id)) return model;
  throw new ApiError('model_not_allowed', `This key is not entitled to the model '${model.id}'. ${usable()}`, {
    param: 'model',
  });
}

/** The catalog's id of a model that a caller has named; empty: there is none, or not for this caller. */
export function knownModel(id: unknown, caller: Caller, catalog: Catalog, time: number): string {
  return typeof id === 'string' ? (findFor(id, caller, catalog, time)?.model.id ?? '') : '';
}

const idLengthShown = 100;
const modelsShown = 50;

function listed(models: readonly Model[]): string {
  if (models.length === 0) return 'This key can use no model.';
  const ids = models.slice(0, modelsShown).map(({ id }) => id);
  const more = models.length - ids.length;
  return `This key can use: ${ids.join(', ')}${more === 0 ? '' : ` and ${more} more (GET /v1/models lists them)`}.`;
}
