import type { Prompt } from '../../generation/request.ts';
import type { StopSignal } from '../../platform/stop-signal.ts';
import { enginePrompt } from './allow.ts';
import type { Allowed } from './allow.ts';
import type { Call, ServeServices } from './call.ts';
import { imageTokens } from './request-images.ts';
import { filesOf, hasFiles, readFiles } from './resolve.ts';
import type { Route } from './route.ts';
import { withImagesRemoved } from './warnings.ts';

/** Whether a form has yet to be compiled, or files to be read. */
export const needsWork = ({ request, asked }: Allowed<unknown>): boolean =>
  request.constraint !== undefined || hasFiles(asked.prompt);

/** Compiles the form and reads the files: work for a request that has a slot and credit. */
export async function prepare<Format>(
  allowed: Allowed<Format>,
  call: Call<Route>,
  services: ServeServices,
  signal: StopSignal,
): Promise<Allowed<Format>> {
  if (!needsWork(allowed)) return allowed;
  const { model, request } = allowed;
  const { at } = allowed.asked;
  const compileCall = { accountId: call.account.id, retain: request.retain, signal };
  const constraint =
    request.constraint === undefined
      ? undefined
      : await services.constraints.compile(request.constraint.source, at.constraintText, compileCall);
  const files = filesOf(allowed.asked.prompt, call, services, signal);
  const { vision } = call.route.flags(model.capabilities);
  const asked =
    files === undefined
      ? allowed.asked
      : { ...allowed.asked, prompt: await readFiles(allowed.asked.prompt, vision, files) };
  const prompt = enginePrompt(asked, asked.prompt, model, call, services);
  const images = imageTokens(prompt, call.lease.poolOf(model.id).backends);
  const warnings = withImagesRemoved(allowed.warnings, allowed.asked.prompt, asked.prompt);
  return { ...allowed, asked, request: { ...request, prompt, constraint }, images, warnings };
}

/** Counts the tokens of the whole input, or of one prompt of it. */
export async function count(
  { model, request }: Allowed<unknown>,
  call: Call<Route>,
  { promptCounts }: ServeServices,
  signal: StopSignal,
  only: Prompt = request.prompt,
): Promise<number | 'too-long' | undefined> {
  const askedMs = performance.now();
  const { backends } = call.lease.poolOf(model.id);
  const counted = await promptCounts.count({ ...request, maxTokens: 1, prompt: only }, backends, signal);
  call.engineMs += performance.now() - askedMs;
  return counted;
}
