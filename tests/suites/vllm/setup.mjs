// Run before the tests of this folder: the first installation takes minutes, which are not the tests' own.
import os from 'node:os';
import path from 'node:path';
import { vllmFolder } from '../../../scripts/vllm.mjs';

/** Where the program keeps its models (src/config/environment.ts). */
const models = () =>
  process.env.TOKENHOUSE_MODEL_DIR ??
  path.join(process.env.XDG_CACHE_HOME ?? path.join(os.homedir(), '.cache'), 'tokenhouse', 'models');

export const setup = () => ({ VLLM_FOLDER: vllmFolder(path.join(models(), 'SmolLM2-135M-Instruct.Q4_1.gguf')) });
