/** Official clients for tests of other folders, which cannot import them: the packages belong to this folder. */
export { BadRequestError, default as OpenAI } from 'openai';
