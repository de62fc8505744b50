import {
  chatFlags,
  extentOf,
  familyFlags,
  fieldOf,
  generalFlags,
  reasoningOfEarlierTurns,
  unlistedFlags,
  type BackendKind,
  type Capabilities,
  type CardFlag,
} from '../catalog/card-flags.ts';
import type { Path } from './document.ts';
import type { BackendConfig } from './sections/backends.ts';
import type { ReasoningInFile } from './sections/reasoning.ts';
import type { Scalar } from './setting.ts';

type Effort = Capabilities['defaultEffort'];
type Flags = Readonly<Record<string, CardFlag>>;

/** The file's settings for a model's card, as written. */
export interface FlagsInFile {
  readonly capabilities: Readonly<Record<string, unknown>>;
  readonly zdr: Readonly<Record<string, unknown>>;
  readonly reasoning: ReasoningInFile;
}

/** `at` is a place in the model's part of the file. */
interface Notes {
  report(at: Path, what: string): void;
  show(at: Path, value: Scalar): void;
}

/**
 * What the card of a model promises, once for all requests and once for those with `Service-ZDR: required`, which only the backends
 * marked `zdr` get (specification §4.2.3(5)). If the file says nothing, a flag is true when every backend supports it. The file
 * disables flags, or asserts what depends on the model; what a backend does not support is refused.
 */
export function capabilitiesOf(
  file: FlagsInFile,
  backends: readonly BackendConfig[],
  { report, show }: Notes,
): { readonly capabilities: Capabilities; readonly zdrCapabilities: Capabilities } {
  const zdrBackends = backends.filter(({ zdr }) => zdr);
  const zdr = zdrOf(file, zdrBackends, report);
  const capabilities = { ...new Partition(file, backends, {}, report).capabilities(), zdr };
  if (capabilities.embeddings.supported && capabilities.rerank.supported && backends.some(isEmbedded))
    report(
      ['rerank', 'supported'],
      'the embedded engine loads a file either to embed or to rank; keep the one that the file was made for',
    );
  // The file's settings for all requests have been checked already.
  const ofZdr: Notes['report'] = (at, what) => void (at[0] === 'zdr' && report(at, what));
  const zdrCapabilities = zdr
    ? { ...new Partition(file, zdrBackends, file.zdr, ofZdr).capabilities(), zdr }
    : capabilities;
  for (const [at, value] of shownOf(capabilities, zdrCapabilities)) show(at, value);
  return { capabilities, zdrCapabilities };
}

const isEmbedded = ({ engine }: BackendConfig): boolean => engine === 'llama';

function zdrOf({ zdr }: FlagsInFile, zdrBackends: readonly BackendConfig[], report: Notes['report']): boolean {
  if (zdrBackends.length > 0) return zdr['supported'] !== false;
  const [flag] = Object.entries(zdr).find(([, value]) => value === true) ?? [];
  if (flag !== undefined)
    report(
      ['zdr', flag],
      'no backend of this model is marked zdr, so no request that requires it could be served; write zdr: true at a backend that retains nothing, or remove this line',
    );
  return false;
}

/** Every flag by its key in the file: `tools`, `chat_completions.tools`, `responses.text_format.json_object`. */
const flagsByKey: ReadonlyMap<string, CardFlag> = new Map([
  ...Object.entries<CardFlag>({ ...generalFlags, ...unlistedFlags }),
  ...Object.entries<Flags>(familyFlags).flatMap(([family, flags]) =>
    Object.entries(flags).flatMap(([key, flag]) => withValues(`${family}.${key}`, flag)),
  ),
]);

/** A list becomes one flag for each of its values. */
function withValues(key: string, flag: CardFlag): readonly (readonly [string, CardFlag])[] {
  const { values, needs = [] } = flag;
  if (values === undefined) return [[key, flag]];
  return Object.entries(values).map(([value, own]) => [`${key}.${value}`, { ...flag, needs: [...own, ...needs] }]);
}

/** The backends that requests of one kind get, and what the card promises for them. */
class Partition {
  readonly #file: FlagsInFile;
  readonly #backends: readonly BackendConfig[];
  /** Empty for requests without zero data retention. */
  readonly #zdr: Readonly<Record<string, unknown>>;
  readonly #report: Notes['report'];
  readonly #known = new Map<string, boolean>();

  constructor(
    file: FlagsInFile,
    backends: readonly BackendConfig[],
    zdr: Readonly<Record<string, unknown>>,
    report: Notes['report'],
  ) {
    this.#file = file;
    this.#backends = backends;
    this.#zdr = zdr;
    this.#report = report;
  }

  capabilities(): Omit<Capabilities, 'zdr'> {
    const [requested, at] = this.#requested('reasoning');
    const thinking = thinkingOf(this.#file.reasoning, this.#backends, requested, at, this.#report);
    this.#known.set('reasoning', thinking.reasoning);
    return {
      ...this.#valuesOf(generalFlags),
      ...thinking,
      chat: { ...this.#valuesOf(chatFlags, 'chat_completions.'), ...this.#valuesOf(unlistedFlags) },
      responses: this.#valuesOf(familyFlags.responses, 'responses.'),
      messages: this.#valuesOf(familyFlags.messages, 'messages.'),
      embeddings: this.#valuesOf(familyFlags.embeddings, 'embeddings.'),
      rerank: this.#valuesOf(familyFlags.rerank, 'rerank.'),
    } as Omit<Capabilities, 'zdr'>;
  }

  #valuesOf(flags: Flags, prefix = ''): Readonly<Record<string, boolean | readonly string[]>> {
    return Object.fromEntries(
      Object.entries(flags).map(([key, flag]) => {
        const is = (value: string): boolean => this.#is(`${prefix}${key}.${value}`);
        const own = flag.values === undefined ? this.#is(`${prefix}${key}`) : Object.keys(flag.values).filter(is);
        return [fieldOf(key, flag), own];
      }),
    );
  }

  #is(key: string): boolean {
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const is = this.#decide(key, flagsByKey.get(key)!);
    this.#known.set(key, is);
    return is;
  }

  #decide(key: string, { backends, needs = [], unless = [] }: CardFlag): boolean {
    const against = unless.find((each) => this.#is(each));
    const missing = needs
      .map((need) => (typeof need === 'string' ? [need] : need))
      .find((any) => !any.some((each) => this.#is(each)));
    const extent = (backend: BackendConfig) => extentOf(kindOf(backend), backends);
    const isLacked = this.#isLacked(key);
    const [requested, at] = this.#requested(key);
    if (requested === undefined)
      return (
        missing === undefined &&
        against === undefined &&
        !isLacked &&
        this.#backends.every((each) => extent(each) === 'yes')
      );
    if (!requested) return false;
    if (against !== undefined) {
      this.#report(at, `a model with ${against} generates no text; remove one of the two lines`);
      return false;
    }
    const unable = this.#backends.find((each) => extent(each) === 'no');
    if (unable !== undefined) this.#report(at, this.#cannot(unable));
    else if (isLacked)
      this.#report(
        at,
        'every backend of this model lacks that (`lacks`), so no request could get it; remove one of the two',
      );
    else if (missing !== undefined) this.#report(at, restsOn(key, String(at.at(-1)), missing[0]!));
    return missing === undefined && !isLacked;
  }

  /** Whether all backends were found to lack it. */
  #isLacked(key: string): boolean {
    const feature = key.split('.').at(-1);
    const isGeneral = !key.includes('.') || key.startsWith('chat_completions.');
    return (
      isGeneral &&
      this.#backends.length > 0 &&
      this.#backends.every((each) => each.engine === 'openai' && each.lacks.some((name) => name === feature))
    );
  }

  /** The file's value of a flag, and its place; `zdr` takes precedence where it sets the flag. */
  #requested(key: string): readonly [boolean | undefined, Path] {
    const [family, name, value] = key.includes('.') ? key.split('.') : [undefined, key];
    // `zdr.supported` is about zero data retention itself.
    const isForZdr = family === undefined || (family === 'chat_completions' && name !== 'supported');
    const inZdr = isForZdr ? this.#zdr[name!] : undefined;
    if (inZdr !== undefined) return [inZdr as boolean, ['zdr', name!]];
    const { capabilities } = this.#file;
    const group = family === undefined ? capabilities : ((capabilities[family] ?? {}) as typeof capabilities);
    const written = group[name!];
    const at = ['capabilities', ...(family === undefined ? [] : [family]), name!];
    return [
      value === undefined ? (written as boolean | undefined) : (written as string[] | undefined)?.includes(value),
      at,
    ];
  }

  #cannot(backend: BackendConfig): string {
    const isForAll = this.#zdr !== this.#file.zdr && this.#backends.some(({ zdr }) => zdr);
    const elsewhere = isForAll ? ', or write it under zdr when only the backends marked zdr can' : '';
    return `the backend "${backend.name}" (${inWords(backend)}) cannot do that, so requests would not get what the card promises; remove this line${elsewhere}`;
  }
}

/** The message for a flag `key`, written as `name`, that depends on `need`, which is false. */
function restsOn(key: string, name: string, need: string): string {
  const [family] = key.split('.');
  const isOfModel = (family === 'responses' || family === 'messages') && !need.startsWith(`${family}.`);
  return isOfModel
    ? `${name} requires a capability that the model does not have; see capabilities.chat_completions`
    : `${name} requires ${need}, which is false here; remove one of the two lines`;
}

const kindOf = (backend: BackendConfig): BackendKind => (backend.engine === 'openai' ? backend.flavor : backend.engine);

const inWords = (backend: BackendConfig): string =>
  backend.engine === 'openai' ? `${backend.engine}, flavor ${backend.flavor}` : backend.engine;

/** The flags in force, under the keys of the file. */
function shownOf(capabilities: Capabilities, zdr: Capabilities): readonly (readonly [Path, Scalar])[] {
  const of = (flags: Flags, values: object, ...at: readonly string[]): (readonly [Path, Scalar])[] =>
    Object.entries(flags).map(([key, flag]) => {
      const value = (values as Readonly<Record<string, boolean | readonly string[]>>)[fieldOf(key, flag)]!;
      return [[...at, key], typeof value === 'boolean' ? value : value.join(', ')];
    });
  return [
    ...of(generalFlags, capabilities, 'capabilities'),
    ...of(unlistedFlags, capabilities.chat, 'capabilities'),
    ...of(chatFlags, capabilities.chat, 'capabilities', 'chat_completions'),
    ...of(familyFlags.responses, capabilities.responses, 'capabilities', 'responses'),
    ...of(familyFlags.messages, capabilities.messages, 'capabilities', 'messages'),
    ...of(familyFlags.embeddings, capabilities.embeddings, 'capabilities', 'embeddings'),
    ...of(familyFlags.rerank, capabilities.rerank, 'capabilities', 'rerank'),
    ...of({ ...chatFlags, ...unlistedFlags }, zdr.chat, 'zdr'),
    // `tools` of any API; `supported` is about zero data retention, not about chat.
    ...of(generalFlags, zdr, 'zdr'),
    [['zdr', 'supported'], capabilities.zdr],
    [['reasoning', 'efforts'], capabilities.efforts.join(', ')],
    [['reasoning', 'default'], capabilities.defaultEffort],
  ];
}

/** Reasoning can be switched off, unless the file says otherwise; the tiers in between depend on its template. */
const defaultEfforts: readonly Effort[] = ['none', 'medium'];

/** In the order used for distances (specification §4.2.5(3)). */
const tiers: readonly Effort[] = ['none', 'low', 'medium', 'high', 'xhigh', 'max'];

type Thinking = Pick<
  Capabilities,
  | 'reasoning'
  | 'efforts'
  | 'defaultEffort'
  | 'reasoningRoomTokens'
  | 'hidesReasoning'
  | 'inlinesReasoning'
  | 'preservesThinking'
>;

/** Everything about reasoning: §4.2.1(5) and §4.2.5. `requested` is the file's value of the flag. */
function thinkingOf(
  file: ReasoningInFile,
  backends: readonly BackendConfig[],
  requested: boolean | undefined,
  requestedAt: Path,
  report: Notes['report'],
): Thinking {
  const { inlines, hides, preserves, roomTokens } = file;
  if (inlines && requested === true)
    report(
      requestedAt,
      'this flag says that reasoning is separate from the answer, but reasoning.inlines says that it is not; remove one of the two',
    );
  // Listed tiers imply that the model reasons.
  const reasoning = requested ?? (!inlines && file.efforts?.some((tier) => tier !== 'none') === true);
  const thinks = reasoning || inlines;
  const needsThinking = (name: string): void => {
    if (!thinks)
      report(['reasoning', name], `${name} requires capabilities.reasoning, which is false; remove one of the two`);
  };

  const listed = file.efforts ?? defaultEfforts;
  if (new Set(listed).size < listed.length)
    report(['reasoning', 'efforts'], 'a tier is listed twice; remove one of them');
  if (file.efforts?.some((tier) => tier !== 'none') === true) needsThinking('efforts');
  const ordered = thinks ? tiers.filter((tier) => listed.includes(tier)) : (['none'] as const);
  const byDefault = file.default ?? nearMedium(ordered);
  const isListed = ordered.some((tier) => tier === byDefault);
  if (!isListed)
    report(
      ['reasoning', 'default'],
      `${byDefault} is not among the efforts (${ordered.join(', ')}), so no request could use it; choose one of them`,
    );
  if (hides && !ordered.some((tier) => tier === 'none'))
    report(
      ['reasoning', 'hides'],
      'it applies to requests with effort none, which is not among the efforts; remove this line, or list none',
    );
  if (roomTokens > 0 && !hides) needsThinking('room_tokens');
  if (preserves) {
    needsThinking('preserves');
    const unable = backends.find((backend) => extentOf(kindOf(backend), reasoningOfEarlierTurns) === 'no');
    if (unable !== undefined)
      report(
        ['reasoning', 'preserves'],
        `the backend "${unable.name}" (${inWords(unable)}) cannot take reasoning of earlier turns; remove this line`,
      );
  }
  return {
    reasoning,
    efforts: ordered,
    defaultEffort: isListed ? byDefault : nearMedium(ordered),
    reasoningRoomTokens: roomTokens,
    hidesReasoning: hides,
    inlinesReasoning: inlines,
    preservesThinking: preserves,
  };
}

/** The tier nearest to medium, and none only when nothing else is listed. */
function nearMedium(efforts: readonly Effort[]): Effort {
  const above = efforts.filter((effort) => effort !== 'none');
  const distance = (effort: Effort): number => Math.abs(tiers.indexOf(effort) - tiers.indexOf('medium'));
  return above.toSorted((a, b) => distance(a) - distance(b))[0] ?? 'none';
}
