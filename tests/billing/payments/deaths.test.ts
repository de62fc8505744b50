import { deathClaims } from './death-claims.ts';
import { openBooks } from './sqlite-books.ts';

deathClaims(openBooks);
