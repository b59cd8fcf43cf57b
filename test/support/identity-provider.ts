/**
 * A real OpenID provider on loopback, with clients that get access tokens for themselves. A test
 * can change its keys, let it be down, and sign with its key what it would never sign.
 */
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { exportJWK, generateKeyPair, importJWK, SignJWT, type JWK, type JWTPayload } from 'jose'
import { Provider } from 'oidc-provider'

export const AUDIENCE = 'https://holdfast.example'
const SCOPES = 'agent:use agent:look'

export class IdentityProvider {
  readonly issuer: string
  /** The paths that were asked for. */
  readonly requests: string[] = []
  /** What answers instead of the provider. */
  instead: RequestListener | null = null
  key: JWK
  readonly #server: Server
  #callback: RequestListener

  static async start(): Promise<IdentityProvider> {
    const server = createServer()
    await once(server.listen(0, '127.0.0.1'), 'listening')
    return new IdentityProvider(server, await newKey())
  }

  constructor(server: Server, key: JWK) {
    this.#server = server
    this.issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    this.key = key
    this.#callback = newProvider(this.issuer, key).callback()
    server.on('request', (request, response) => {
      this.requests.push(request.url ?? '')
      const answer = this.instead ?? this.#callback
      answer(request, response)
    })
  }

  /** How often its keys were asked for. */
  get reads(): number {
    return this.requests.filter((path) => path === '/jwks').length
  }

  /** It has a new key, and has given up the one before. */
  async rotate(): Promise<void> {
    this.key = await newKey()
    this.#callback = newProvider(this.issuer, this.key).callback()
  }

  /** A token that it gives to this client. */
  async token(client = 'alice', scope = SCOPES): Promise<string> {
    const response = await fetch(`${this.issuer}/token`, {
      method: 'POST',
      headers: { authorization: `Basic ${btoa(`${client}:secret`)}` },
      body: new URLSearchParams({ grant_type: 'client_credentials', resource: AUDIENCE, scope }),
    })
    const answer = (await response.json()) as { readonly access_token?: string }
    if (answer.access_token === undefined) throw new Error(JSON.stringify(answer))
    return answer.access_token
  }

  /** A token of its own, unless `claims` and `header` say otherwise. */
  async sign(claims: JWTPayload = {}, header: object = {}, key = this.key): Promise<string> {
    const now = Math.floor(Date.now() / 1_000)
    const usual = { iss: this.issuer, aud: AUDIENCE, sub: 'alice', exp: now + 600 }
    const { kid = '', alg = '' } = key
    return new SignJWT({ ...usual, jti: randomUUID(), ...claims })
      .setProtectedHeader({ alg, kid, ...header })
      .sign(await importJWK(key))
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, 'close')
  }
}

async function newKey(): Promise<JWK> {
  const { privateKey } = await generateKeyPair('RS256', { extractable: true })
  return { ...(await exportJWK(privateKey)), alg: 'RS256', use: 'sig', kid: randomUUID() }
}

function newProvider(issuer: string, key: JWK): Provider {
  return new Provider(issuer, {
    clients: ['alice', 'bob'].map((name) => ({
      client_id: name,
      client_secret: 'secret',
      grant_types: ['client_credentials'],
      redirect_uris: [],
      response_types: [],
    })),
    cookies: { keys: ['not used'] },
    jwks: { keys: [key] },
    extraTokenClaims: () => ({ groups: ['team'], agents: ['echo'], browsers: ['there'] }),
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_context: unknown, audience: string) => ({
          audience,
          scope: SCOPES,
          accessTokenFormat: 'jwt',
          accessTokenTTL: 600,
          jwt: { sign: { alg: 'RS256' } },
        }),
      },
    },
  })
}
