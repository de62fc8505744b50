export { setup } from '../postgres/setup.mjs';
