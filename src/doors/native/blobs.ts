/** The bytes of images and files that turns of a session name by their digest. */
import { HoldfastError } from '../../core/index.ts'
import { Type } from '../../schema/typebox.ts'
import { imageTypeOf } from '../../wire/media.ts'
import type { Exchange } from '../exchange.ts'
import { json, routes, sessionOfPath } from '../route.ts'

const BYTES_TYPE = 'application/octet-stream'
const bytes = { type: 'string', format: 'binary' }

export const blobRoutes = routes({
  'POST /v1/sessions/:id/blobs': {
    name: 'postBlob',
    summary: 'Store the bytes of an image or a file, for turns that name them by their digest',
    operation: 'turn.run',
    takesParts: true,
    body: bytes,
    bodyType: BYTES_TYPE,
    answers: {
      201: json(
        'The digest for `input.parts`.',
        Type.Object({ digest: Type.String(), bytes: Type.Integer({ minimum: 1 }) }),
      ),
    },
    refusals: [404, 410, 413, 415, 429],
    session: sessionOfPath,
    handle: postBlob,
  },
  'GET /v1/sessions/:id/blobs/:digest': {
    name: 'getBlob',
    summary: 'The bytes of an image or a file',
    operation: 'session.read',
    answers: { 200: { description: 'The bytes.', content: { [BYTES_TYPE]: bytes } } },
    refusals: [404, 410],
    handle: getBlob,
  },
})

async function postBlob(exchange: Exchange): Promise<void> {
  // Before the body: no bytes of a stranger are read.
  await exchange.session.assertMay('turn.run')
  // No type that a page of another site may send without asking first.
  if (exchange.header('content-type') !== BYTES_TYPE) {
    const message = `send the bytes with the header content-type: ${BYTES_TYPE}`
    throw new HoldfastError('unsupported_media_type', message)
  }
  const data = await exchange.body()
  exchange.reply(201, { digest: await exchange.session.putBlob(data), bytes: data.length })
}

/** Only images are shown by a browser, and by what they are, whatever their sender called them. */
async function getBlob(exchange: Exchange): Promise<void> {
  const [, digest = ''] = exchange.params
  const data = await exchange.session.readBlob(digest)
  const type = imageTypeOf(data)
  exchange.send(200, type ?? BYTES_TYPE, data, [
    ...['Content-Disposition', type === null ? 'attachment' : 'inline'],
    ...['Content-Security-Policy', "default-src 'none'; frame-ancestors 'none'; sandbox"],
  ])
}
