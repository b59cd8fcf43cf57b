/** The issuers of JSON Web Tokens that a server accepts: their schema, and its check. */
import { SCOPES } from '../core/access.ts'
import { invalid } from '../core/errors.ts'
import type { Quotas } from '../core/quotas.ts'
import { contract, EXACT, list, optional, type RefuseField } from './contract.ts'
import { QUOTA_FIELDS } from './quotas.ts'
import { Type, type Static } from './typebox.ts'

/** Signatures that are checked with a public key. With any other, a reader could sign too. */
export const JWT_ALGORITHMS = [
  ...(['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'] as const),
  ...(['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'] as const),
] as const
export const CLOCK_SKEW_MS = 30_000
/** More would make the expiry of a token meaningless. */
const CLOCK_SKEW_MS_MAX = 600_000

const Claims = Type.Object(
  optional({
    id: Type.String({ minLength: 1, default: 'sub', description: "the holder's id" }),
    groups: Type.String({ minLength: 1, description: 'its groups: a text, or a list of texts' }),
    scopes: Type.String({
      minLength: 1,
      description: 'what it may do: words with spaces between them, or a list of texts',
    }),
    agents: Type.String({
      minLength: 1,
      description: 'the agents that it may use: a text, or a list of texts; none without the claim',
    }),
    browsers: Type.String({ minLength: 1, description: 'the browsers that it may use, likewise' }),
  }),
  EXACT,
)

export const JwtIssuer = Type.Object(
  {
    issuer: Type.String({
      minLength: 1,
      description: 'the `iss` of its tokens, exactly: `https://…` (`http://…` on loopback only)',
    }),
    audience: Type.String({
      minLength: 1,
      description: 'what `aud` of a token must be or contain: the name of this server there',
    }),
    ...optional({
      jwks: Type.String({
        minLength: 1,
        description:
          'where its public keys are; without it, where ' +
          '`ISSUER/.well-known/openid-configuration` says',
      }),
      algorithms: list({
        values: JWT_ALGORITHMS,
        minItems: 1,
        default: JWT_ALGORITHMS,
        description: 'the signatures that are accepted',
      }),
      clockSkewMs: Type.Integer({
        minimum: 0,
        maximum: CLOCK_SKEW_MS_MAX,
        default: CLOCK_SKEW_MS,
        description: "how far the issuer's clock may differ, for `exp` and `nbf`; at most 10 min",
      }),
      scopes: list({
        values: SCOPES,
        default: [],
        description: `what every token of this issuer may do: ${SCOPES.join(', ')}`,
      }),
      claims: Type.Unsafe<Static<typeof Claims>>({
        ...Claims,
        description:
          'which claims say more: `id` (`sub` without it), `groups`, `scopes`, `agents`, ' +
          '`browsers`',
      }),
      scopeMap: Type.Record(Type.String(), list({ values: SCOPES }), {
        description:
          'scopes by the words of the claim `scopes`, like `{"agent:use": ["talk", "answer"]}`; ' +
          'without it the words are the scopes themselves',
      }),
      agents: list({ description: 'the agents that every token of this issuer is limited to' }),
      browsers: list({ description: 'the browsers that every token of it is limited to' }),
      limits: Type.Unsafe<Quotas>({
        ...QUOTA_FIELDS,
        description:
          'how much each principal of this issuer may use; takes precedence over `quotas`',
      }),
    }),
  },
  EXACT,
)
export type JwtIssuer = Static<typeof JwtIssuer>

const readIssuers = contract(Type.Array(JwtIssuer), 'is no field')

/** Throws `invalid_field` unless these issuers can be used. `field`: where they are. */
export function checkJwtIssuers(value: unknown, field = 'jwt'): readonly JwtIssuer[] {
  const refuse: RefuseField = (name, problem) =>
    invalid(name === '' ? field : `${field}.${name}`, problem)
  const issuers = readIssuers(value, refuse)
  for (const [index, { issuer, jwks }] of issuers.entries()) {
    const problem = 'must be an address with https://, or with http:// on loopback'
    if (!isSafeUrl(issuer)) throw refuse(`${index}.issuer`, problem)
    if (jwks !== undefined && !isSafeUrl(jwks)) throw refuse(`${index}.jwks`, problem)
    const isTwice = issuers.findIndex((other) => other.issuer === issuer) < index
    if (isTwice) throw refuse(`${index}.issuer`, 'is there already')
  }
  return issuers
}

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/

/** Nobody between this server and the address can change what it says. */
export function isSafeUrl(text: string): boolean {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || /\s/.test(text) || url.username !== '' || url.password !== '') return false
  if (url.protocol === 'https:') return true
  return url.protocol === 'http:' && LOOPBACK.test(url.hostname)
}
