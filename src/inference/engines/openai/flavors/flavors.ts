import type { FlavorName } from '../../../../generation/flavor-names.ts';
import type { Flavor } from './flavor.ts';
import { llamaServer } from './llama-server.ts';
import { lmStudio } from './lm-studio.ts';
import { ollama } from './ollama.ts';
import { openai } from './openai.ts';
import { sglang } from './sglang.ts';
import { tei } from './tei.ts';
import { tgi } from './tgi.ts';
import { vllm } from './vllm.ts';

export const flavors: Readonly<Record<FlavorName, Flavor>> = {
  'llama-server': llamaServer,
  'lm-studio': lmStudio,
  ollama,
  vllm,
  sglang,
  tei,
  tgi,
  openai,
};
