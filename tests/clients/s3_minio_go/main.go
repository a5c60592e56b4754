// One round trip of a file with minio-go: up as a stream of unknown length, down whole, in a range, listed, and removed.
//
//	s3-minio-go HOST:PORT BUCKET KEY FILE
//
// The keys of the user are in ACCESS_KEY and SECRET_KEY.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: s3-minio-go HOST:PORT BUCKET KEY FILE")
		os.Exit(2)
	}
	if err := roundTrip(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func roundTrip(host, bucket, key, file string) error {
	ctx := context.Background()
	client, err := minio.New(host, &minio.Options{
		Creds:        credentials.NewStaticV4(os.Getenv("ACCESS_KEY"), os.Getenv("SECRET_KEY"), ""),
		BucketLookup: minio.BucketLookupPath,
		Region:       "us-east-1",
	})
	if err != nil {
		return err
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	// Without a length the client sends parts; with one, a body whose chunks are signed.
	for _, length := range []int64{-1, int64(len(body))} {
		options := minio.PutObjectOptions{PartSize: 8 << 20, UserMetadata: map[string]string{"Kind": "test"}}
		if _, err := client.PutObject(ctx, bucket, key, bytes.NewReader(body), length, options); err != nil {
			return fmt.Errorf("put with length %d: %w", length, err)
		}
		if err := compare(ctx, client, bucket, key, body); err != nil {
			return fmt.Errorf("put with length %d: %w", length, err)
		}
	}
	count := 0
	for object := range client.ListObjects(ctx, bucket, minio.ListObjectsOptions{Recursive: true, Prefix: key}) {
		if object.Err != nil {
			return object.Err
		}
		count++
	}
	if count != 1 {
		return fmt.Errorf("%d objects are listed", count)
	}
	return client.RemoveObject(ctx, bucket, key, minio.RemoveObjectOptions{})
}

func compare(ctx context.Context, client *minio.Client, bucket, key string, body []byte) error {
	info, err := client.StatObject(ctx, bucket, key, minio.StatObjectOptions{})
	if err != nil {
		return err
	}
	if info.Size != int64(len(body)) || info.UserMetadata["Kind"] != "test" {
		return fmt.Errorf("stat says %d bytes and %v", info.Size, info.UserMetadata)
	}
	object, err := client.GetObject(ctx, bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return err
	}
	defer object.Close()
	found, err := io.ReadAll(object)
	if err != nil {
		return err
	}
	if !bytes.Equal(found, body) {
		return fmt.Errorf("%d bytes came back different", len(found))
	}
	if len(body) < 2 {
		return nil
	}
	tail := make([]byte, len(body)/2)
	if _, err := object.ReadAt(tail, int64(len(body)-len(tail))); err != nil && err != io.EOF {
		return err
	}
	if !bytes.Equal(tail, body[len(body)-len(tail):]) {
		return fmt.Errorf("the second half came back different")
	}
	return nil
}
