import type { Capabilities } from '../catalog/model.ts';
import { extentOf, kindOf } from './abilities.ts';
import type { Ability } from './abilities.ts';
import type { BackendConfig } from './config.ts';
import type { Path } from './document.ts';
import type { ModelInFile } from './schema.ts';

type Report = (at: Path, what: string) => unknown;
type Effort = Capabilities['defaultEffort'];

/**
 * What the card of a model promises, once for all requests and once for those with `Service-ZDR: required`, which only the
 * backends marked `zdr` get (specification §4.2.3(5)). Where the file says nothing, a flag is true when every backend can do it.
 * The file disables flags, or asserts what depends on the model; what a backend cannot do is refused.
 */
export function capabilitiesOf(
  model: ModelInFile,
  backends: readonly BackendConfig[],
  report: Report,
): { readonly capabilities: Capabilities; readonly zdrCapabilities: Capabilities } {
  const zdrBackends = backends.filter(({ zdr }) => zdr);
  const zdr = zdrOf(model, zdrBackends, report);
  const capabilities = { ...flagsOf(model, backends, false, report), zdr };
  if (!zdr) return { capabilities, zdrCapabilities: capabilities };
  // The file's settings for all requests have been checked already.
  const ofZdr: Report = (at, what) => at[0] === 'zdr' && report(at, what);
  return { capabilities, zdrCapabilities: { ...flagsOf(model, zdrBackends, true, ofZdr), zdr } };
}

function zdrOf({ zdr }: ModelInFile, zdrBackends: readonly BackendConfig[], report: Report): boolean {
  if (zdrBackends.length > 0) return zdr?.supported ?? true;
  const [flag] = Object.entries(zdr ?? {}).find(([, value]) => value) ?? [];
  if (flag !== undefined)
    report(
      ['zdr', flag],
      'no backend of this model is marked zdr, so no request that requires it could be served; write zdr: true at a backend that retains nothing, or remove this line',
    );
  return false;
}

/** The requirement of a flag, by its name in the file. */
type Need = readonly [isThere: boolean, name: string];

function flagsOf(
  model: ModelInFile,
  backends: readonly BackendConfig[],
  isZdr: boolean,
  report: Report,
): Omit<Capabilities, 'zdr'> {
  const file = model.capabilities ?? {};
  const { chat_completions: chat = {} } = file;
  const ofZdr: NonNullable<ModelInFile['zdr']> = isZdr ? (model.zdr ?? {}) : {};

  const flag = (
    ability: Ability | undefined,
    requested: boolean | undefined,
    at: Path,
    needs: readonly Need[] = [],
  ): boolean => {
    const missing = needs.find(([isThere]) => !isThere);
    if (requested === undefined)
      return (
        missing === undefined && backends.every((each) => ability === undefined || extentOf(each, ability) === 'yes')
      );
    if (!requested) return false;
    const unable = backends.find((each) => ability !== undefined && extentOf(each, ability) === 'no');
    if (unable !== undefined)
      report(
        at,
        `the backend "${unable.name}" (${kindOf(unable)}) cannot do that, so the card would promise what requests do not get; remove this line${isZdr || !backends.some(({ zdr }) => zdr) ? '' : ', or write it under zdr when only the backends marked zdr can'}`,
      );
    else if (missing !== undefined)
      report(at, `${String(at.at(-1))} rests on ${missing[1]}, which is false here; remove this line, or that one`);
    return missing === undefined;
  };
  /** `ofZdr` comes first where it sets the flag. */
  const input = <Name extends string>(
    name: Name,
    own: boolean | undefined,
    at: Path,
  ): readonly [boolean | undefined, Path] => {
    const inZdr = (ofZdr as Readonly<Partial<Record<string, boolean>>>)[name];
    return inZdr === undefined ? [own, at] : [inZdr, ['zdr', name]];
  };
  const general = (name: 'vision' | 'tools' | 'logprobs' | 'logit_bias', ability: Ability): boolean =>
    flag(ability, ...input(name, file[name], ['capabilities', name]));
  const ofChat = (name: keyof typeof chat, ability: Ability | undefined, needs: readonly Need[]): boolean =>
    flag(ability, ...input(name, chat[name], ['capabilities', 'chat_completions', name]), needs);

  const vision = general('vision', 'vision');
  const tools = general('tools', 'tools');
  const logprobs = general('logprobs', 'logprobs');
  const logitBias = general('logit_bias', 'logitBias');
  // `zdr.supported` is about zero data retention itself.
  const supported = flag(undefined, chat.supported, ['capabilities', 'chat_completions', 'supported']);
  const isServed: Need = [supported, 'chat_completions.supported'];
  const streaming = ofChat('streaming', 'streaming', [isServed]);
  const chatTools = ofChat('tools', 'tools', [isServed, [tools, 'tools']]);
  const jsonObject = ofChat('json_object', 'jsonObject', [isServed]);
  const jsonSchema = ofChat('json_schema', 'jsonSchema', [isServed]);
  const grammar = ofChat('grammar', 'grammar', [isServed]);
  const hasTools: Need = [chatTools, 'chat_completions.tools'];
  const hasFormat: Need = [jsonObject || jsonSchema || grammar, 'chat_completions.json_schema'];
  const thinking = thinkingOf(
    model,
    backends,
    input('reasoning', file.reasoning, ['capabilities', 'reasoning']),
    report,
  );
  const flags = {
    vision,
    tools,
    ...thinking,
    chat: {
      supported,
      streaming,
      tools: chatTools,
      toolStreaming: ofChat('tool_streaming', 'toolStreaming', [hasTools, [streaming, 'chat_completions.streaming']]),
      jsonObject,
      jsonSchema,
      jsonSchemaRefs: ofChat('json_schema_refs', 'jsonSchemaRefs', [
        isServed,
        [jsonSchema || chatTools, 'chat_completions.json_schema'],
      ]),
      toolsWithResponseFormat: ofChat('tools_with_response_format', 'toolsWithResponseFormat', [hasTools, hasFormat]),
      n: ofChat('n', 'n', [isServed]),
      regex: ofChat('regex', 'regex', [isServed]),
      grammar,
      logprobs,
      logitBias,
    },
  };
  return { ...flags, ...otherFamilies(model, flags, report) };
}

/** /v1/responses and /v1/messages: what the model can do, and the file does not disable. */
function otherFamilies(
  { capabilities: { responses = {}, messages = {} } = {} }: ModelInFile,
  { vision, tools, reasoning, chat }: Pick<Capabilities, 'vision' | 'tools' | 'reasoning' | 'chat'>,
  report: Report,
): Pick<Capabilities, 'responses' | 'messages'> {
  const flag = (
    family: string,
    name: string,
    requested: boolean | undefined,
    canDo: boolean,
    isServed = true,
  ): boolean => {
    const at = ['capabilities', family, name];
    if (requested === true) {
      if (!canDo)
        report(at, `${name} rests on what the model can do, and it cannot; see capabilities.chat_completions`);
      else if (!isServed)
        report(at, `${name} rests on ${family}.supported, which is false here; remove this line, or that one`);
    }
    return isServed && canDo && (requested ?? true);
  };
  const onResponses = flag('responses', 'supported', responses.supported, true);
  const ofResponses = (name: Exclude<keyof typeof responses, 'text_format'>, canDo: boolean): boolean =>
    flag('responses', name, responses[name], canDo, onResponses);
  const onMessages = flag('messages', 'supported', messages.supported, true);
  const ofMessages = (name: keyof typeof messages, canDo: boolean): boolean =>
    flag('messages', name, messages[name], canDo, onMessages);
  const wanted = responses.text_format;
  const formats = (['text', 'json_object', 'json_schema'] as const).filter((format) => {
    const canDo = { text: true, json_object: chat.jsonObject, json_schema: chat.jsonSchema }[format];
    return flag('responses', 'text_format', wanted?.includes(format), canDo, onResponses);
  });
  const streamsMessages = ofMessages('streaming', chat.streaming);
  const callsInMessages = ofMessages('tools', tools);
  return {
    responses: {
      supported: onResponses,
      streaming: ofResponses('streaming', chat.streaming),
      tools: ofResponses('tools', tools),
      textFormats: formats,
      rawJsonSchemaText: ofResponses('raw_json_schema_text', formats.includes('json_schema')),
    },
    messages: {
      supported: onMessages,
      streaming: streamsMessages,
      tools: callsInMessages,
      toolStreaming: ofMessages('tool_streaming', callsInMessages && streamsMessages && chat.toolStreaming),
      vision: ofMessages('vision', vision),
      reasoning: ofMessages('reasoning', reasoning),
    },
  };
}

/** A reasoning model can be switched off, unless the file says otherwise; the tiers in between depend on its template. */
const defaultEfforts: readonly Effort[] = ['none', 'medium'];

/** In the order used for distances (specification §4.2.5(3)). */
const tiers: readonly Effort[] = ['none', 'low', 'medium', 'high', 'xhigh', 'max'];

/** Everything about reasoning: §4.2.1(5) and §4.2.5. */
function thinkingOf(
  { reasoning: file }: ModelInFile,
  backends: readonly BackendConfig[],
  [requested, requestedAt]: readonly [boolean | undefined, Path],
  report: Report,
): Pick<
  Capabilities,
  | 'reasoning'
  | 'efforts'
  | 'defaultEffort'
  | 'reasoningRoomTokens'
  | 'hidesReasoning'
  | 'inlinesReasoning'
  | 'preservesThinking'
> {
  const inlines = file?.inlines ?? false;
  if (inlines && requested === true)
    report(
      requestedAt,
      'this flag says that reasoning comes apart from the answer, and reasoning.inlines that it does not; remove one of the two',
    );
  // Listed tiers imply that the model reasons.
  const reasoning = requested ?? (!inlines && file?.efforts?.some((tier) => tier !== 'none') === true);
  const thinks = reasoning || inlines;
  const needsThinking = (name: keyof NonNullable<typeof file>): void => {
    if (!thinks)
      report(['reasoning', name], `${name} rests on capabilities.reasoning, which is false; remove one of the two`);
  };

  const listed = file?.efforts ?? defaultEfforts;
  if (new Set(listed).size < listed.length)
    report(['reasoning', 'efforts'], 'a tier stands here twice; remove one of them');
  if (file?.efforts?.some((tier) => tier !== 'none') === true) needsThinking('efforts');
  const ordered = thinks ? tiers.filter((tier) => listed.includes(tier)) : (['none'] as const);
  const byDefault = file?.default ?? nearMedium(ordered);
  const isListed = ordered.some((tier) => tier === byDefault);
  if (!isListed)
    report(
      ['reasoning', 'default'],
      `${byDefault} is not among the efforts (${ordered.join(', ')}), so no request could run at it; take one of them`,
    );
  const hides = file?.hides ?? false;
  if (hides && !ordered.some((tier) => tier === 'none'))
    report(
      ['reasoning', 'hides'],
      'it is about requests with effort none, which is not among the efforts; remove this line, or list none',
    );
  if ((file?.room_tokens ?? 0) > 0 && !hides) needsThinking('room_tokens');
  const preserves = file?.preserves ?? false;
  if (preserves) {
    needsThinking('preserves');
    const unable = backends.find((backend) => extentOf(backend, 'preservesThinking') === 'no');
    if (unable !== undefined)
      report(
        ['reasoning', 'preserves'],
        `the backend "${unable.name}" (${kindOf(unable)}) takes no reasoning of earlier turns; remove this line`,
      );
  }
  return {
    reasoning,
    efforts: ordered,
    defaultEffort: isListed ? byDefault : nearMedium(ordered),
    reasoningRoomTokens: file?.room_tokens ?? 0,
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
